import { builtFile } from '../built-file.ts';
import type { Child, Children } from '../children.ts';
import type { GoPrograms } from '../go/programs.ts';
import { type ShimPlaces, startShim } from '../shim.ts';
import { connectWhenThere } from '../sockets.ts';

/**
 * The process between client and backend: none, a byte relay in Node, a typed CRI proxy in Go (if Go is installed), or
 * the shim. Reports use this order.
 */
export const sideNames = ['direct', 'relay', 'peer', 'shim'] as const;
export type SideName = (typeof sideNames)[number];

export interface Side {
  readonly name: SideName;
  readonly socket: string;
  /** The process between client and backend. */
  readonly child: Child | undefined;
}

/** All paths to a backend. */
export interface Way {
  readonly sides: readonly Side[];
  readonly shim: Child;
}

/** Starts the byte relay in front of a backend. */
export async function startRelay(children: Children, name: string, backend: string): Promise<Side & { child: Child }> {
  const socket = children.path(`relay-${name}.sock`);
  const child = children.spawn(`relay-${name}`, process.execPath, [builtFile('tools/bench-relay.js'), socket, backend]);
  await accepts(child, socket);
  return { name: 'relay', socket, child };
}

/** Starts the typed proxy in front of a backend. */
export async function startPeer(
  children: Children,
  name: string,
  backend: string,
  { typedProxy }: GoPrograms,
): Promise<Side & { child: Child }> {
  const socket = children.path(`peer-${name}.sock`);
  const child = children.spawn(`peer-${name}`, typedProxy, [socket, backend]);
  await accepts(child, socket);
  return { name: 'peer', socket, child };
}

async function accepts(child: Child, socket: string): Promise<void> {
  const connection = await child.until(connectWhenThere(socket));
  connection.close();
}

/** Starts a shim, a relay and, if Go is there, a typed proxy in front of a backend. */
export async function openWay(
  children: Children,
  name: string,
  places: ShimPlaces,
  programs: GoPrograms | undefined,
): Promise<Way> {
  const { backend } = places;
  const shim = await startShim(children, `shim-${name}`, places);
  const relay = await startRelay(children, name, backend);
  const peer = programs === undefined ? [] : [await startPeer(children, name, backend, programs)];
  const direct: Side = { name: 'direct', socket: backend, child: undefined };
  return {
    sides: [direct, relay, ...peer, { name: 'shim', socket: shim.socket, child: shim.child }],
    shim: shim.child,
  };
}

/** Stops everything in front of the backend. */
export async function closeWay({ sides }: Way): Promise<void> {
  for (const { child } of sides) await child?.stop();
}
