import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import type { Socket } from 'node:net';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ServiceError } from '@grpc/grpc-js';
import { Client, credentials, Metadata, status } from '@grpc/grpc-js';
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { noCounters } from '../../../src/core/observe/counters.ts';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { runtimePath } from '../../../src/runtime/backend.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { createLocalServer } from '../../../src/server/handlers/local-server.ts';
import { createInterceptors, localHandlers } from '../../../src/server/handlers/table.ts';
import { decodeUpdate } from '../../../src/server/handlers/update-resources.ts';
import type { LocalCalls } from '../../../src/server/local-calls.ts';
import { serveConnection } from '../../../src/server/proxy/serve.ts';
import { withEntries } from '../../e2e/resize/bad-input/case.ts';
import { containerId, FakeRuntime, podConfig, RuntimeFailure, SANDBOX } from '../../support/fake-runtime.ts';

describe('forwarding of updates', () => {
  // A caller may disconnect during a call, like a kubelet that restarts. Its resize is completed or rolled back.
  const identity = (bytes: Buffer): Buffer => bytes;

  let runtime: FakeRuntime;
  let local: LocalCalls;
  let client: Client;
  const closing: (() => unknown)[] = [];

  /** The server of the call: the proxy itself, or the grpc-js server behind it. */
  let served: 'the proxy' | 'grpc-js' = 'the proxy';

  function throughProxy(socket: Socket): void {
    const connection = serveConnection(socket, {
      connectBackend: (onread) => connect({ path: runtime.backend.address.replace('unix://', ''), onread }),
      connectLocal: () => local.connect(process.pid),
      handle: (call, respond) => local.handle(call, respond, process.pid),
      interception: { route: () => 'handle', amend: () => undefined, amendMessage: () => undefined },
    });
    closing.push(() => connection.destroy());
  }

  function throughJs(socket: Socket): void {
    const connection = local.connect(process.pid);
    socket.pipe(connection).pipe(socket);
    socket.on('error', () => connection.destroy());
    closing.push(() => socket.destroy());
  }

  beforeEach(async () => {
    runtime = await FakeRuntime.start();
    runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.applyUpdates();
    const interceptors = createInterceptors(runtime.node, runtime.decreaseReclaimer, {
      version: '0',
      readiness: () => Promise.resolve({ ready: true, checks: [] }),
      connections: () => 1,
    });
    local = createLocalServer(localHandlers(interceptors, runtime.backend), { log: noLog, counters: noCounters });
    const folder = mkdtempSync(join(tmpdir(), 'cancelled-'));
    const path = join(folder, 'front.sock');
    const bridge = createServer((socket) => (served === 'the proxy' ? throughProxy(socket) : throughJs(socket)));
    await new Promise<void>((resolve) => bridge.listen(path, resolve));
    client = new Client(`unix:${path}`, credentials.createInsecure());
    closing.push(
      () => client.close(),
      () => bridge.close(),
      () => local.close(),
      () => runtime.close(),
      () => rmSync(folder, { recursive: true }),
    );
  });

  afterEach(async () => {
    for (const close of closing.splice(0)) await close();
  });

  /** Raises the first container. Cancels the call while the runtime applies it. Resolves on the caller's error. */
  async function callAndCancel(continued: Promise<void>, outcome: 'done' | 'failed'): Promise<void> {
    let arrived = (): void => undefined;
    const atRuntime = new Promise<void>((resolve) => (arrived = resolve));
    let first = true;
    runtime.wrapResponder('UpdateContainerResources', async (request, obey) => {
      if (!first) return obey(request);
      first = false;
      const answer = await obey(request);
      arrived();
      await continued;
      if (outcome === 'failed') throw new RuntimeFailure(status.INTERNAL, 'runc was killed');
      return answer;
    });
    const linux = { memory_limit_in_bytes: BigInt(150 * MiB), cpu_quota: 20_000n, cpu_period: 100_000n };
    const request = encode('UpdateContainerResourcesRequest', { container_id: containerId(0), linux });
    const error = await new Promise<ServiceError | null>((resolve) => {
      const call = client.makeUnaryRequest(
        runtimePath('UpdateContainerResources'),
        identity,
        identity,
        request,
        (failure: ServiceError | null) => resolve(failure),
      );
      void atRuntime.then(() => call.cancel());
    });
    expect(error?.code).toBe(status.CANCELLED);
  }

  const found = (): string[] => [
    ...['memory.max', 'cpu.max'].flatMap((file) => [runtime.read(file), runtime.read(`${containerId(0)}/${file}`)]),
    ...readdirSync(runtime.stateFolder).filter((name) => name.endsWith('.json')),
  ];

  describe.each(['the proxy', 'grpc-js'] as const)('calls through %s', (way) => {
    beforeAll(() => void (served = way));

    test.each([
      ['completed', 'done', [String(350 * MiB), String(150 * MiB), '30000 100000', '20000 100000']],
      ['rolled back', 'failed', [String(300 * MiB), String(100 * MiB), '20000 100000', '10000 100000']],
    ] as const)('a resize whose caller has cancelled is %s', async (_how, outcome, values) => {
      let release = (): void => undefined;
      await callAndCancel(new Promise<void>((resolve) => (release = resolve)), outcome);
      release();
      // Waits for the end of the resize, which holds the lock of its pod.
      await runtime.node.lock.run(podConfig.metadata.uid, () => Promise.resolve());
      expect(found()).toEqual(values);
    });

    test('the history contains the process of the caller, regardless of its headers', async () => {
      const metadata = new Metadata();
      metadata.set('x-cri-resize-shim-peer', '1');
      const request = encode('UpdateContainerResourcesRequest', {
        container_id: containerId(0),
        linux: { memory_limit_in_bytes: BigInt(150 * MiB) },
      });
      await new Promise<void>((resolve, reject) => {
        client.makeUnaryRequest(
          runtimePath('UpdateContainerResources'),
          identity,
          identity,
          request,
          metadata,
          (error) => (error === null ? resolve() : reject(error)),
        );
      });
      const name = readFileSync('/proc/self/comm', 'utf8').trim();
      expect(runtime.node.history.ofPod(SANDBOX)).toMatchObject([
        { requester: { kind: 'cri-client', process: { pid: process.pid, name } }, state: 'Completed' },
      ]);
    });
  });
});

const LONGEST = 512 * 1024;
const NAME = 'UpdateContainerResourcesRequest';

test('rejects an update above 512 KiB without decoding it, and forwards one that cannot be decoded', async () => {
  const runtime = await FakeRuntime.start();
  const { node, failOpens } = runtime;
  // These bytes are no message. The length is checked before they are decoded.
  expect(() => decodeUpdate(node.failOpen, NAME, Buffer.alloc(LONGEST + 1, 0xff))).toThrow(
    `${NAME}: ${LONGEST + 1} bytes: an update has at most ${LONGEST} bytes`,
  );
  expect(failOpens).toEqual([]);
  expect(decodeUpdate(node.failOpen, NAME, Buffer.alloc(LONGEST, 0xff))).toBeUndefined();
  expect(failOpens).toEqual(['undecodable']);
  await runtime.close();
});

// decode.speed.test.ts measures the duration.
test('decodes an update of almost the largest size that consists of map keys', async () => {
  const runtime = await FakeRuntime.start();
  const longest = withEntries(44_000, 'id', [2, 9]);
  expect(longest.length).toBeGreaterThan(LONGEST * 0.9);
  expect(Object.keys(decodeUpdate(runtime.node.failOpen, NAME, longest)?.linux?.unified ?? {})).toHaveLength(44_000);
  await runtime.close();
});
