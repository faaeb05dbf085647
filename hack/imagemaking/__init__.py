"""What hack/images and hack/base-image are made of: build inputs, the base image, the build itself."""
