module flexserv/hack/pause

go 1.26.0
