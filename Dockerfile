# Image of the shim. The DaemonSet in deploy/ installs it on nodes, or it runs with the node's /run, /var/lib/kubelet,
# /var/lib/cri-resize-shim and /sys/fs/cgroup mounted. Runs as root, because it writes cgroups and remounts volumes.
# The base by digest: a rebuild has the same one, and a moved tag cannot change it. Its Node only builds.
ARG BASE=node:26-slim@sha256:ffc78385a788964bb3cbab5e434ff79a10bdc25b8ae6db03fe5fe6cb14053c09
FROM ${BASE} AS build
WORKDIR /build
COPY package.json package-lock.json ./
# Native binaries are separate packages, so no install scripts are needed.
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json LICENSE ./
COPY tools tools
COPY systemd systemd
COPY proto proto
COPY src src
RUN node tools/build.mjs
# The same folder as in `npm run package`, the Node of package-lock.json, and the bill of materials of both.
RUN node dist/tools/package.js --only image --to /out

FROM ${BASE}
# The Node that the tests run. npm has compared it with its digest in package-lock.json.
COPY --from=build /out/node /usr/local/bin/node
COPY --from=build /out/sbom.cdx.json /usr/local/share/doc/cri-resize-shim/sbom.cdx.json
COPY --from=build /out/program /usr/local/lib/cri-resize-shim
# The program of the DaemonSet in deploy/: it installs the shim and this Node on the host. The base image has nsenter.
COPY --from=build /build/dist/cri-resize-shim-installer.js /usr/local/lib/cri-resize-shim/dist/
# Keeps kubelet's socket and starts the shim. Without Node, which may be what is broken: bash, s6 for the socket, and the proxy of systemd,
# which is not the init of the image.
RUN apt-get update && apt-get install -y --no-install-recommends s6 systemd && rm -rf /var/lib/apt/lists/*
COPY container/entry.sh /usr/local/lib/cri-resize-shim/container/
# The same values as in the systemd unit.
ENV MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=65536
ENTRYPOINT ["bash", "/usr/local/lib/cri-resize-shim/container/entry.sh"]
