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
# Keeps kubelet's socket and starts the shim. Perl: Node may be what is broken, and perl-base is an essential package of the base image.
COPY container/entry.pl /usr/local/lib/cri-resize-shim/container/
# The same values as in the systemd unit.
ENV MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=65536
ENTRYPOINT ["perl", "/usr/local/lib/cri-resize-shim/container/entry.pl"]
