# The program in an image: to be copied onto a node from, or to be run with the node's /run, /var/lib/kubelet,
# /var/lib/cri-resize-shim and /sys/fs/cgroup mounted.
FROM node:24-slim AS build
WORKDIR /build
COPY package.json package-lock.json ./
# Binaries come as packages of their own: no install scripts are needed.
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json ./
COPY scripts scripts
COPY proto proto
COPY src src
RUN node scripts/build.mjs
# What stays outside the bundle: koffi, and its native part for this platform. (@grpc/proto-loader too, which grpc-js asks
# for only for channelz, and that is off.)
RUN mkdir -p /out/node_modules \
 && cp -r dist /out/dist \
 && cp -r node_modules/koffi node_modules/@koromix /out/node_modules/

FROM node:24-slim
COPY --from=build /out /usr/local/lib/cri-resize-shim
COPY proto /usr/local/lib/cri-resize-shim/proto
COPY LICENSE package.json /usr/local/lib/cri-resize-shim/
# As the unit in systemd/ has it.
ENV MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=65536
ENTRYPOINT ["node", "/usr/local/lib/cri-resize-shim/dist/cri-resize-shim.js"]
