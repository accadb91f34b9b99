// A fake kubelet for tests that replace the runtime. systemd starts it. It dials the endpoint of its flag, of the last
// drop-in that sets one, or of its configuration, lists pods every second, and writes the result of each call as a line
// of JSON with time, endpoint, and pods or error. With --fake-k3s=SOCKET, it is the kubelet in the process of k3s,
// which hides its flags and serves a containerd of its own there. With --kubelet-args-file=FILE, it is kubelite of
// MicroK8s, with its flags in that file.
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { dirname } from 'node:path';
import { Client, credentials } from '@grpc/grpc-js';

const [log = '', refuses = '', ...given] = process.argv.slice(2);
const argsFile = given.find((word) => word.startsWith('--kubelet-args-file='))?.split('=')[1];
const common = '/var/snap/microk8s/common';
const flags =
  argsFile === undefined ? given : readFileSync(argsFile, 'utf8').replaceAll('${SNAP_COMMON}', common).split('\n');
const flag = (name: string): string | undefined =>
  flags.findLast((word) => word.startsWith(`--${name}=`))?.slice(name.length + 3);
const embedded = flag('fake-k3s');
if (embedded !== undefined) process.title = '/usr/local/bin/k3s server';
// The shim finds kubelet by the name of its process. Node has named it after its main thread.
writeFileSync(
  '/proc/self/comm',
  argsFile !== undefined ? 'kubelite' : embedded === undefined ? 'kubelet' : 'k3s-server',
);
if (embedded !== undefined) serveContainerd(embedded);

const [config, configDir] = [flag('config'), flag('config-dir')];
const names = configDir === undefined ? [] : readdirSync(configDir).filter((name) => name.endsWith('.conf'));
const dropIns = names.toSorted().map((name) => `${configDir}/${name}`);
const written = [config, ...dropIns]
  .map((file) => file && /"?containerRuntimeEndpoint"?: *"?([^\s",}]+)/.exec(readFileSync(file, 'utf8'))?.[1])
  .findLast((found) => found !== undefined);
const endpoint = flag('container-runtime-endpoint') ?? written ?? 'unix:///run/containerd/containerd.sock';
const note = (entry: object): void =>
  appendFileSync(log, `${JSON.stringify({ time: Date.now(), endpoint, ...entry })}\n`);

if (existsSync(refuses) && readFileSync(refuses, 'utf8').trim() === endpoint) {
  process.stderr.write(`no runtime at ${endpoint}\n`);
  process.exit(1);
}

/** Serves the node's containerd at another socket, until this process ends. */
function serveContainerd(socket: string): void {
  mkdirSync(dirname(socket), { recursive: true });
  rmSync(socket, { force: true });
  const server = createServer((one) => {
    const other = connect('/run/containerd/containerd.sock');
    one.pipe(other).pipe(one);
    for (const end of [one, other]) end.on('error', () => (one.destroy(), other.destroy()));
  });
  server.listen(socket);
}

// kubelet takes a path without a scheme for that of a socket (parseEndpoint in k8s.io/cri-client/pkg/util).
const client = new Client(endpoint.replace(/^\//, 'unix:///'), credentials.createInsecure());
const bytes = (message: Buffer): Buffer => message;
function list(): void {
  const options = { deadline: Date.now() + 10_000 };
  const path = '/runtime.v1.RuntimeService/ListPodSandbox';
  client.makeUnaryRequest(path, bytes, bytes, Buffer.alloc(0), options, (error, answer) => {
    note(error ? { error: error.message } : { bytes: answer?.length ?? 0 });
  });
}
list();
setInterval(list, 1000);
process.once('SIGTERM', () => process.exit(0));
