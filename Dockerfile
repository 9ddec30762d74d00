# Tidegate as an image of two files: the static binary and its licence, beside the
# certificates that Redis over TLS needs. Build it with `make docker`.

# The builder runs on the machine's own platform and compiles for the target's.
FROM --platform=$BUILDPLATFORM golang:1.26.8-alpine AS build
WORKDIR /src
# The modules are a layer of their own: a changed source file downloads nothing again.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /out/sidecar ./cmd/sidecar
# A volume mounted on the Unix socket's folder takes over this folder's owner.
RUN mkdir -p /out/run/tidegate

FROM scratch
ARG VERSION=dev
LABEL org.opencontainers.image.title="Tidegate" \
      org.opencontainers.image.description="Rate-limiter sidecar" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /out/run/tidegate /run/tidegate
COPY --from=build /out/sidecar /sidecar
COPY LICENSE /LICENSE
# A number, not a name: scratch has no passwd file, and Kubernetes' runAsNonRoot asks for one.
USER 65532:65532
# The API and the metrics listener. Both are on loopback or off until the config says otherwise.
EXPOSE 7400 7403
HEALTHCHECK --interval=10s --timeout=2s --start-period=5s --retries=3 CMD ["/sidecar", "check", "--ready"]
ENTRYPOINT ["/sidecar"]
CMD ["serve"]
