import { once } from 'node:events';
import type { Server, Socket } from 'node:net';
import { createServer } from 'node:net';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { HpackDecoder } from '../../../src/http2/hpack/codec.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import type { Messages, Partially } from '../../../src/runtime/messages.ts';
import type { SeenFrame } from '../../support/http2/wire.ts';
import {
  CONTINUATION,
  DATA,
  data,
  END_HEADERS,
  END_STREAM,
  frame,
  HEADERS,
  headers,
  message,
  OK,
  PADDED,
  PING,
  PREFACE,
  parseFrames,
  RESPONSE,
  rst,
  SETTINGS,
  SETTINGS_ACK,
  settings,
  windowUpdate,
} from '../../support/http2/wire.ts';
import { mutateMessage } from '../mutations/message.ts';
import { mutateBytes } from '../mutations/values.ts';
import { Random } from '../random.ts';
import { containerInfo, podInfo, resources, runtimeConfiguration } from '../seeds/messages.ts';
import type { FakePod } from './node.ts';
import { podOf, pods } from './node.ts';

/** A runtime's answers for the node's pods, by the last part of the method. */

const running = (id: string, name: string): Partially<Messages['ContainerStatusResponse']['status']> => ({
  id,
  metadata: { name },
  state: 1,
  created_at: 1n,
  resources: { linux: { ...resources, unified: {}, hugepage_limits: [] } },
});

function podStatus(request: Buffer): Buffer {
  const asked = decode('PodSandboxStatusRequest', request).pod_sandbox_id;
  const pod = pods.find(({ id }) => id === asked) ?? pods[0]!;
  const { config } = podInfo;
  const info = {
    ...config,
    metadata: { name: pod.name, uid: pod.uid, namespace: 'default' },
    linux: { ...config.linux, cgroup_parent: pod.cgroup },
  };
  return encode('PodSandboxStatusResponse', {
    status: { id: pod.id, state: 0, metadata: info.metadata },
    info: { info: JSON.stringify({ config: info }) },
    containers_statuses: pod.containers.map(({ id, name }) => running(id, name)!),
  });
}

function containerStatus(request: Buffer): Buffer {
  const asked = decode('ContainerStatusRequest', request).container_id;
  const pod = podOf(asked) ?? pods[0]!;
  const { id, name } = pod.containers.find((container) => container.id === asked) ?? pod.containers[0]!;
  const info = { ...containerInfo, sandboxID: pod.id, pid: 0 };
  return encode('ContainerStatusResponse', { status: running(id, name), info: { info: JSON.stringify(info) } });
}

const listed = ({ id: pod_sandbox_id, containers }: FakePod) =>
  containers.map(({ id, name }) => ({ id, pod_sandbox_id, metadata: { name }, state: 1, created_at: 1n }));

function event(): Buffer {
  const pod = pods[1]!;
  const containers_statuses = pod.containers.map(({ id, name }) => running(id, name)!);
  return encode('ContainerEventResponse', { container_id: pod.containers[0]!.id, containers_statuses });
}

const empty = Buffer.alloc(0);

const answers: Readonly<Record<string, (request: Buffer) => Buffer>> = {
  Echo: (request) => request,
  Version: () => encode('VersionResponse', { runtime_name: 'containerd', runtime_version: '2.1.0' }),
  RuntimeConfig: () => encode('RuntimeConfigResponse', { linux: { cgroup_driver: 1 } }),
  Status: () => encode('StatusResponse', { info: { config: JSON.stringify(runtimeConfiguration) } }),
  ListPodSandbox: () => encode('ListPodSandboxResponse', { items: pods.map(({ id }) => ({ id, state: 0 })) }),
  ListContainers: () => encode('ListContainersResponse', { containers: pods.flatMap(listed) }),
  PodSandboxStatus: podStatus,
  ContainerStatus: containerStatus,
  RunPodSandbox: () => encode('RunPodSandboxResponse', { pod_sandbox_id: pods[7]!.id }),
  CreateContainer: () => encode('CreateContainerResponse', { container_id: pods[7]!.containers[1]!.id }),
  GetContainerEvents: event,
};

/** Returns the answer to a request. A request that is no message gets an empty one. */
export function answerOf(path: string, request: Buffer): Buffer {
  try {
    const name = path.slice(path.lastIndexOf('/') + 1);
    return Object.hasOwn(answers, name) ? answers[name]!(request) : empty;
  } catch {
    return empty;
  }
}

const PRIORITY_FLAG = 0x20;
const responseBlock = headers(1, RESPONSE).subarray(9);
const okBlock = headers(1, OK).subarray(9);
const LAST_ANSWERS = 50;

/**
 * A runtime that answers for the node's pods, with mutated answers now and then. It writes HTTP/2 frames by hand, so
 * that it takes a small part of the time of the program under test.
 */
export class HostileBackend {
  readonly #server: Server;
  readonly #seed: number;
  #answers = 0;
  /** The last mutated answers, for the report of a failure. */
  readonly recent: string[] = [];

  private constructor(seed: number) {
    this.#seed = seed;
    this.#server = createServer((socket) => new BackendConnection(socket, (call) => this.#answer(call)));
  }

  static async listen(path: string, seed: number): Promise<HostileBackend> {
    const backend = new HostileBackend(seed);
    backend.#server.listen(path);
    await once(backend.#server, 'listening');
    return backend;
  }

  close(): void {
    this.#server.close();
  }

  /** Returns the frames of an answer, for stream 1. */
  #answer({ path, body }: Call): readonly Buffer[] {
    const random = new Random(this.#seed, this.#answers);
    this.#answers += 1;
    const good = answerOf(path, body);
    // Probes receive correct answers.
    if (path.endsWith('/Echo') || !random.chance(3)) return [...withStatus(message(good))];
    const answer = mutated(good, random);
    this.recent.push(
      `${path} ${Buffer.concat([...answer])
        .toString('hex')
        .slice(0, 600)}`,
    );
    if (this.recent.length > LAST_ANSWERS) this.recent.shift();
    return answer;
  }
}

const withStatus = (body: Buffer): Buffer[] => [
  frame(HEADERS, END_HEADERS, 1, responseBlock),
  frame(DATA, 0, 1, body),
  frame(HEADERS, END_HEADERS | END_STREAM, 1, okBlock),
];

function mutated(good: Buffer, random: Random): Buffer[] {
  const status = (code: number | string) => [{ name: 'grpc-status', value: String(code) }];
  switch (random.below(24)) {
    case 0:
      return [headers(1, [...RESPONSE, ...status(random.pick([1, 2, 4, 5, 8, 12, 13, 14, 99, 'x']))], true)];
    case 1:
      return [headers(1, RESPONSE), data(1, message(good), true)];
    case 2:
      return withStatus(Buffer.concat([message(good), message(good)]));
    case 3:
      return withStatus(message(good, true));
    case 4:
      return withStatus(message(good).subarray(0, random.below(good.length + 5)));
    case 5:
      return [headers(1, RESPONSE), rst(1, random.below(14))];
    case 6:
      return withStatus(mutateBytes(message(good), random));
    case 7:
      return [headers(1, [{ name: ':status', value: random.pick(['503', '404', '0', 'x']) }], true)];
    default:
      return withStatus(message(mutateMessage(good, random)));
  }
}

interface Call {
  readonly path: string;
  readonly body: Buffer;
}

/** Answers the requests of one connection. Ends it when it does not understand a frame. */
class BackendConnection {
  readonly #socket: Socket;
  readonly #answer: (call: Call) => readonly Buffer[];
  readonly #decoder = new HpackDecoder(4096, MiB);
  readonly #requests = new Map<number, { readonly path: string; readonly parts: Buffer[] }>();
  #rest: Buffer = Buffer.alloc(0);
  #isGreeted = false;
  #block: { readonly id: number; readonly parts: Buffer[]; readonly isLast: boolean } | undefined;

  constructor(socket: Socket, answer: (call: Call) => readonly Buffer[]) {
    this.#socket = socket;
    this.#answer = answer;
    socket.on('error', () => undefined);
    socket.on('data', (bytes: Buffer) => this.#receive(bytes));
    socket.write(Buffer.concat([settings([4, 2 ** 30]), windowUpdate(0, 2 ** 30)]));
  }

  #receive(bytes: Buffer): void {
    this.#rest = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    if (!this.#isGreeted) {
      if (this.#rest.length < PREFACE.length) return;
      this.#isGreeted = true;
      this.#rest = this.#rest.subarray(PREFACE.length);
    }
    const { frames, rest } = parseFrames(this.#rest);
    this.#rest = rest;
    try {
      const answers = frames.flatMap((seen) => this.#frame(seen));
      if (answers.length > 0 && !this.#socket.destroyed) this.#socket.write(Buffer.concat(answers));
    } catch {
      this.#socket.destroy();
    }
  }

  #frame({ type, flags, id, payload }: SeenFrame): readonly Buffer[] {
    const isLast = (flags & END_STREAM) !== 0;
    switch (type) {
      case SETTINGS:
        return flags === 0 ? [SETTINGS_ACK] : [];
      case PING:
        return flags === 0 ? [frame(PING, 1, 0, payload)] : [];
      case HEADERS:
        this.#block = { id, parts: [unpadded(flags, payload)], isLast };
        return this.#headersEnd(flags);
      case CONTINUATION:
        this.#block?.parts.push(payload);
        return this.#headersEnd(flags);
      case DATA:
        this.#requests.get(id)?.parts.push(unpadded(flags & PADDED, payload));
        return isLast ? this.#end(id) : [];
      default:
        return [];
    }
  }

  #headersEnd(flags: number): readonly Buffer[] {
    const block = this.#block;
    if ((flags & END_HEADERS) === 0 || block === undefined) return [];
    const fields = this.#decoder.decode(Buffer.concat(block.parts));
    const path = fields.find(({ name }) => name === ':path')?.value;
    // Otherwise trailers.
    if (path !== undefined) this.#requests.set(block.id, { path, parts: [] });
    return block.isLast ? this.#end(block.id) : [];
  }

  #end(id: number): readonly Buffer[] {
    const request = this.#requests.get(id);
    this.#requests.delete(id);
    if (request === undefined) return [];
    const body = Buffer.concat(request.parts).subarray(5);
    return this.#answer({ ...request, body }).map((part) => onStream(part, id));
  }
}

function onStream(part: Buffer, id: number): Buffer {
  const copy = Buffer.from(part);
  copy.writeUInt32BE(id, 5);
  return copy;
}

function unpadded(flags: number, payload: Buffer): Buffer {
  const isPadded = (flags & PADDED) !== 0;
  const from = (isPadded ? 1 : 0) + ((flags & PRIORITY_FLAG) === 0 ? 0 : 5);
  return payload.subarray(from, payload.length - (isPadded ? (payload[0] ?? 0) : 0));
}
