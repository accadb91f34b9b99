# The program in an image: to be installed on nodes by the DaemonSet in deploy/, or to be run with the node's /run, /var/lib/kubelet,
# /var/lib/cri-resize-shim and /sys/fs/cgroup mounted. Root, as it has to be there: it writes cgroups and remounts.
FROM node:26-slim AS build
WORKDIR /build
COPY package.json package-lock.json ./
# Binaries come as packages of their own: no install scripts are needed.
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json LICENSE ./
COPY tools tools
COPY systemd systemd
COPY proto proto
COPY src src
RUN node tools/build.mjs
# The same folder that `npm run package` makes.
RUN node dist/tools/package.js --only tree --to /out

FROM node:26-slim
COPY --from=build /out /usr/local/lib/cri-resize-shim
# What the DaemonSet in deploy/ starts: it puts the rest, and this Node, on its host. nsenter is in the base.
COPY --from=build /build/dist/cri-resize-shim-installer.js /usr/local/lib/cri-resize-shim/dist/
# As the unit in systemd/ has it.
ENV MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=65536
ENTRYPOINT ["node", "/usr/local/lib/cri-resize-shim/dist/cri-resize-shim.js"]
