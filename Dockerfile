# Image of the shim. The DaemonSet in deploy/ installs it on nodes, or it runs with the node's /run, /var/lib/kubelet,
# /var/lib/cri-resize-shim and /sys/fs/cgroup mounted. Runs as root, because it writes cgroups and remounts volumes.
FROM node:26-slim AS build
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
# The same folder as in `npm run package`.
RUN node dist/tools/package.js --only tree --to /out

FROM node:26-slim
COPY --from=build /out /usr/local/lib/cri-resize-shim
# The program of the DaemonSet in deploy/: it installs the shim and this Node on the host. The base image has nsenter.
COPY --from=build /build/dist/cri-resize-shim-installer.js /usr/local/lib/cri-resize-shim/dist/
# Keeps kubelet's socket and starts the shim. Perl: Node may be what is broken, and perl-base is an essential package of the base image.
COPY container/entry.pl /usr/local/lib/cri-resize-shim/container/
# The same values as in the systemd unit.
ENV MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=65536
ENTRYPOINT ["perl", "/usr/local/lib/cri-resize-shim/container/entry.pl"]
