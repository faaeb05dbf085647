# Two images from one file:
#   docker build --target backend  -t flexserv/backend .      the model server
#   docker build --target operator -t flexserv/operator .     the operator, without torch
# By default the backend gets PyPI's CUDA build of torch. Another CUDA version is another index:
#   --build-arg TORCH_SPEC=torch==<version>+cu126 --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cu126
# For a smaller image without CUDA put torch's +cpu wheel into .build/wheels/ and pass TORCH_SPEC=torch==<version>+cpu
# and BACKEND_EXTRAS=backend. Nothing here names an architecture; arm64 is untested.
# The operator's stages come first: the legacy builder builds all that stands above its target.

# A Debian with Python 3.11 and its venv module.
ARG BASE_IMAGE=python:3.11-slim-bookworm


# uid 1000, but any uid works: nothing but the home folder is ever written, and that is open to group 0. USER is what
# libraries ask for where the uid has no entry in /etc/passwd.
FROM ${BASE_IMAGE} AS runtime
RUN useradd --uid 1000 --gid 0 --home-dir /home/flexserv --create-home --shell /usr/sbin/nologin flexserv \
    && chmod 2770 /home/flexserv
ENV PATH=/opt/flexserv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/opt/code PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HOME=/home/flexserv USER=flexserv
WORKDIR /
USER 1000:0
ARG BASE_IMAGE
LABEL org.opencontainers.image.vendor="FlexServ" org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.base.name="${BASE_IMAGE}"


# pip and setuptools for the stages below; the images get neither.
FROM ${BASE_IMAGE} AS tools
# How pip reaches its index, if not directly; these reach no image.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_DEFAULT_TIMEOUT
ARG PIP_CERT
# Byte code is compiled afterwards, on all cores; a file in the syntax of a newer Python than this one is passed over.
ENV PIP_NO_COMPILE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_FIND_LINKS=/build PIP_CONSTRAINT=/build/constraints.txt
# Both folders of .build may be missing: wheels that go before the index, certificates for PIP_CERT=/build/ca.crt.
# leftovers.py deletes what no run reads, and says why: two thirds of a gigabyte of the CUDA image.
COPY constraints.txt hack/imagemaking/leftovers.py .build/wheels* .build/certificates* /build/
RUN python3 -m venv /opt/tools \
    && /opt/tools/bin/pip install setuptools \
    && python3 -m venv --without-pip /opt/flexserv


# What an extra of pyproject.toml asks for, as a requirements file: an edit elsewhere in pyproject.toml then leaves the
# layer with the packages, which depends on this file only, as it is.
FROM ${BASE_IMAGE} AS operator-requirements
COPY pyproject.toml hack/imagemaking/requirements.py /source/
RUN python3 /source/requirements.py /source/pyproject.toml operator > /requirements.txt


FROM tools AS operator-packages
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_DEFAULT_TIMEOUT
ARG PIP_CERT
COPY --from=operator-requirements /requirements.txt /build/
RUN /opt/tools/bin/pip --python /opt/flexserv/bin/python install --requirement /build/requirements.txt \
    && /opt/tools/bin/pip --python /opt/flexserv/bin/python list --format freeze > /opt/flexserv/packages.txt \
    && python3 /build/leftovers.py /opt/flexserv/lib/python3*/site-packages \
    && (python3 -m compileall -qq -j 0 /opt/flexserv/lib || true)


# Our own code lies apart from the packages, so that a change of it makes a layer of kilobytes. setuptools takes the
# packages that it finds, so each image has its half only.
FROM tools AS operator-code
WORKDIR /source
COPY pyproject.toml LICENSE ./
COPY operator operator
RUN mkdir backend && touch README.md \
    && /opt/tools/bin/pip install --no-index --no-deps --no-build-isolation --target /opt/code . \
    && python3 -m compileall -q /opt/code


FROM runtime AS operator
COPY --from=operator-packages /opt/flexserv /opt/flexserv
COPY --from=operator-code /opt/code /opt/code
EXPOSE 8080 9090
ENTRYPOINT ["/opt/flexserv/bin/python", "-m", "flexserv_operator"]
ARG VERSION=unversioned
LABEL org.opencontainers.image.title="flexserv-operator" org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.description="Keeps FlexServModels resident on FlexServ backends"


FROM ${BASE_IMAGE} AS backend-requirements
ARG BACKEND_EXTRAS=backend,cuda
COPY pyproject.toml hack/imagemaking/requirements.py /source/
RUN python3 /source/requirements.py /source/pyproject.toml "${BACKEND_EXTRAS}" > /requirements.txt


FROM tools AS backend-packages
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_DEFAULT_TIMEOUT
ARG PIP_CERT
ARG TORCH_SPEC=torch
COPY --from=backend-requirements /requirements.txt /build/
RUN /opt/tools/bin/pip --python /opt/flexserv/bin/python install "${TORCH_SPEC}" \
        --requirement /build/requirements.txt \
    && /opt/tools/bin/pip --python /opt/flexserv/bin/python list --format freeze > /opt/flexserv/packages.txt \
    && python3 /build/leftovers.py /opt/flexserv/lib/python3*/site-packages \
    && (python3 -m compileall -qq -j 0 /opt/flexserv/lib || true)


FROM tools AS backend-code
WORKDIR /source
COPY pyproject.toml LICENSE ./
COPY backend backend
RUN mkdir operator && touch README.md \
    && /opt/tools/bin/pip install --no-index --no-deps --no-build-isolation --target /opt/code . \
    && python3 -m compileall -q /opt/code


FROM runtime AS backend
COPY --from=backend-packages /opt/flexserv /opt/flexserv
COPY --from=backend-code /opt/code /opt/code
# In a container the loopback default would be out of everybody's reach.
ENV FLEXSERV_HOST=0.0.0.0
EXPOSE 8001
ENTRYPOINT ["/opt/flexserv/bin/python", "-m", "hf_transformers_backend.backend_server"]
ARG VERSION=unversioned
LABEL org.opencontainers.image.title="flexserv-backend" org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.description="Serves many transformers models behind one OpenAI-compatible API"
