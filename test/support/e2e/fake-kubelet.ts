// A fake kubelet for tests that replace the runtime. systemd starts it. It dials the endpoint of its flag, of the last
// drop-in that sets one, or of its configuration, lists pods every second, and writes the result of each call as a line
// of JSON with time, endpoint, and pods or error.
import { appendFileSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { Client, credentials } from '@grpc/grpc-js';

// The shim finds kubelet by the name of its process. Node has named it after its main thread.
writeFileSync('/proc/self/comm', 'kubelet');

const [log = '', refuses = '', ...flags] = process.argv.slice(2);
const flag = (name: string): string | undefined =>
  flags.findLast((word) => word.startsWith(`--${name}=`))?.slice(name.length + 3);
const [config, configDir] = [flag('config'), flag('config-dir')];
const names = configDir === undefined ? [] : readdirSync(configDir).filter((name) => name.endsWith('.conf'));
const dropIns = names.toSorted().map((name) => `${configDir}/${name}`);
const written = [config, ...dropIns]
  .map((file) => file && /^containerRuntimeEndpoint: *"?([^\s"]+)/m.exec(readFileSync(file, 'utf8'))?.[1])
  .findLast((found) => found !== undefined);
const endpoint = flag('container-runtime-endpoint') ?? written ?? 'unix:///run/containerd/containerd.sock';
const note = (entry: object): void =>
  appendFileSync(log, `${JSON.stringify({ time: Date.now(), endpoint, ...entry })}\n`);

if (existsSync(refuses) && readFileSync(refuses, 'utf8').trim() === endpoint) {
  process.stderr.write(`no runtime at ${endpoint}\n`);
  process.exit(1);
}

const client = new Client(endpoint, credentials.createInsecure());
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
