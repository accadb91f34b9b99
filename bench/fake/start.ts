import { once } from 'node:events';
import { createConnection } from 'node:net';
import { builtFile } from '../built-file.ts';
import type { Child, Children } from '../children.ts';
import { connectWhenThere } from '../sockets.ts';
import { type FakePod, makeNode, writePods } from './pods.ts';

/** Starts the fake runtime. Returns its socket when it answers. */
export async function startFake(children: Children): Promise<string> {
  const socket = children.path('fake.sock');
  await answers(children.spawn('fake', process.execPath, [builtFile('tools/bench-fake.js'), socket]), socket);
  return socket;
}

/** A node of pods on a fake runtime, with a fake cgroup tree. */
export interface FakePods {
  readonly backend: string;
  readonly cgroupRoot: string;
  readonly pods: readonly FakePod[];
  /** Returns the time that calls have been with the runtime until now, in microseconds. */
  backendTime(): Promise<number>;
  stop(): Promise<void>;
}

export interface FakeNode {
  readonly pods: number;
  /** Containers of each pod. */
  readonly containers: number;
  /** Duration of an update of a container in the runtime, and the number of concurrent updates. */
  readonly updates?: { readonly milliseconds: number; readonly atOnce: number };
}

/** Starts a node with this many pods and containers of each pod. */
export async function startFakePods(
  children: Children,
  name: string,
  { pods, containers, updates }: FakeNode,
): Promise<FakePods> {
  const [backend, cgroupRoot] = [children.path(`${name}.sock`), children.folderInMemory()];
  const all = makeNode(pods, containers);
  await writePods(cgroupRoot, all);
  const program = builtFile('tools/bench-fake-pods.js');
  const pace = updates === undefined ? [] : [`${updates.milliseconds}`, `${updates.atOnce}`];
  const child = children.spawn(name, process.execPath, [
    ...[program, backend, cgroupRoot, `${pods}`, `${containers}`],
    ...pace,
  ]);
  await answers(child, backend);
  return {
    backend,
    cgroupRoot,
    pods: all,
    backendTime: () => child.until(readTime(`${backend}.time`)),
    stop: () => child.stop(),
  };
}

async function answers(child: Child, socket: string): Promise<void> {
  const connection = await child.until(connectWhenThere(socket));
  connection.close();
}

async function readTime(path: string): Promise<number> {
  const socket = createConnection(path);
  let text = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  await once(socket, 'close');
  return Number(text);
}
