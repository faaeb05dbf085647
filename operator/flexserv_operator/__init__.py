"""The FlexServ operator: keeps FlexServModels true on the backend pods of one namespace."""
