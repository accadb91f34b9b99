import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { Plan } from '../../support/http2/model.ts';
import { contents, ModelClient, ModelServer, responses } from '../../support/http2/model.ts';
import type { TestProxy } from '../../support/http2/wire.ts';
import {
  data,
  dataOf,
  headers,
  holdingUpTo,
  message,
  openProxy,
  PREFACE,
  RESPONSE,
  request,
  SETTINGS_ACK,
  settings,
  settled,
  startProxy,
  windowUpdate,
} from '../../support/http2/wire.ts';

test('all window updates of one read check the waiting lanes only once', () => {
  const proxy = openProxy({ readAhead: 10_000 });
  proxy.client.send(headers(1, request('/pass/A'), true), windowUpdate(1, 100_000));
  proxy.backend.send(headers(1, RESPONSE));
  for (let sent = 0; sent < 65_535; sent += 13_107) proxy.backend.send(data(1, Buffer.alloc(13_107)));
  proxy.backend.send(data(1, Buffer.alloc(6000)));
  proxy.client.take();
  const pump = vi.spyOn(proxy.core.flowControl, 'pump');
  proxy.client.send(Buffer.concat(Array.from({ length: 500 }, () => windowUpdate(0, 10))));
  expect(pump).toHaveBeenCalledTimes(1);
  expect(dataOf(proxy.client.take(), 1)).toHaveLength(5000);
  proxy.client.send(settings([4, 100_000]), settings([4, 200_000]));
  proxy.backend.send(SETTINGS_ACK, SETTINGS_ACK);
  proxy.client.send(windowUpdate(0, 1000));
  expect(pump).toHaveBeenCalledTimes(3);
  expect(dataOf(proxy.client.take(), 1)).toHaveLength(1000);
});

const APPENDED = Buffer.alloc(70, 'z');
/** The largest frame of the model. */
const FRAME_SIZE = 16_384;
/** Its last message begins in the others' DATA frame: the backend's window ended 3 bytes above the limit. */
const HELD_AFTER_OTHERS: Plan = { route: 'each', up: 0, down: 1 };

/** Amends a message of a stream, or leaves it unchanged. */
const amendedMessage = (bytes: Uint8Array): Buffer | undefined =>
  bytes.length % 3 === 0 ? undefined : Buffer.concat([bytes, APPENDED]);

/** Returns the messages of a response, each as the backend sends it and as it is amended. */
function messagesOf(id: number, its: Plan): { sent: Buffer; amended: Buffer }[] {
  return responses(id, its).map((bytes) => {
    let amended: Buffer | undefined;
    if (its.route === 'amend') amended = Buffer.concat([bytes, APPENDED]);
    if (its.route === 'each') amended = amendedMessage(bytes);
    return { sent: message(bytes), amended: message(amended ?? bytes) };
  });
}

/** Whether exactly these messages have arrived. With limited memory, some may not have been amended. */
function arrived(received: Buffer, messages: ReturnType<typeof messagesOf>, isLimited: boolean): boolean {
  let at = 0;
  for (const { sent, amended } of messages) {
    const found = [amended, ...(isLimited ? [sent] : [])].find((bytes) =>
      bytes.equals(received.subarray(at, at + bytes.length)),
    );
    if (found === undefined) return false;
    at += found.length;
  }
  return at === received.length;
}

const size = fc.oneof(fc.nat(60), fc.nat(3000), fc.nat(90_000));
const plan: fc.Arbitrary<Plan> = fc.record({
  route: fc.constantFrom('pass', 'handle', 'amend', 'each'),
  up: fc.oneof(fc.nat(40), fc.nat(90_000)),
  down: size,
});
const action = fc.oneof(
  fc.record({ kind: fc.constant('start' as const), plan }),
  fc.record({ kind: fc.constant('upload' as const), pick: fc.nat(), most: size }),
  fc.record({ kind: fc.constant('answer' as const), server: fc.nat(1), pick: fc.nat(), most: size }),
  fc.record({ kind: fc.constant('serve' as const), server: fc.nat(1), most: size }),
  fc.record({ kind: fc.constant('read' as const), who: fc.nat(2), frames: fc.integer({ min: 1, max: 20 }) }),
  fc.record({ kind: fc.constant('grant' as const), who: fc.nat(2), pick: fc.nat(), most: size }),
  fc.record({ kind: fc.constant('initial' as const), who: fc.nat(2), size: fc.oneof(fc.nat(100), fc.nat(200_000)) }),
  fc.record({ kind: fc.constant('cancel' as const), pick: fc.nat() }),
  fc.record({ kind: fc.constant('wait' as const) }),
);
type Action = typeof action extends fc.Arbitrary<infer One> ? One : never;

class World {
  readonly proxy: TestProxy;
  readonly client: ModelClient;
  readonly backend: ModelServer;
  local: ModelServer | undefined;

  constructor(readAhead: number, queueLimit: number) {
    this.proxy = startProxy({
      readAhead,
      queueLimit,
      amend: ({ response }) => Promise.resolve(Buffer.concat([response, APPENDED])),
      // The amendment completes at once, or later.
      amendMessage: (_, bytes) =>
        bytes.length % 2 === 0 ? amendedMessage(bytes) : Promise.resolve(amendedMessage(bytes)),
      shared: holdingUpTo(2 ** 30),
    });
    this.client = new ModelClient(this.proxy.client);
    this.backend = new ModelServer(this.proxy.backend);
    this.client.sendSettings(PREFACE);
    this.backend.sendSettings();
    this.collect();
  }

  collect(): void {
    this.client.collect();
    this.backend.collect();
    const [transport] = this.proxy.locals;
    if (transport !== undefined && this.local === undefined) {
      this.local = new ModelServer(transport);
      this.local.sendSettings();
    }
    this.local?.collect();
  }

  async act(step: Action): Promise<void> {
    const peers = [this.client, this.backend, this.local ?? this.backend] as const;
    const pickOf = (ids: Iterable<number>, pick: number): number => {
      const all = [...ids];
      return all.length === 0 ? -1 : all[pick % all.length]!;
    };
    if (step.kind === 'start') this.client.start(step.plan);
    if (step.kind === 'upload') this.client.sendSome(pickOf(this.client.streams.keys(), step.pick), step.most);
    if (step.kind === 'answer') {
      const server = step.server === 0 ? this.backend : (this.local ?? this.backend);
      server.sendSome(pickOf(server.streams.keys(), step.pick), step.most);
    }
    if (step.kind === 'serve') {
      for (const id of this.client.streams.keys()) this.client.sendSome(id, 100_000);
      this.collect();
      const server = step.server === 0 ? this.backend : (this.local ?? this.backend);
      while (server.step());
      for (const id of server.streams.keys()) server.sendSome(id, step.most);
    }
    if (step.kind === 'read') for (let read = 0; read < step.frames; read += 1) peers[step.who]!.step();
    if (step.kind === 'grant') {
      const peer = peers[step.who]!;
      const id = step.pick % 2 === 0 ? 0 : pickOf(peer.streams.keys(), step.pick);
      peer.grant(id, step.most);
    }
    if (step.kind === 'cancel') this.client.cancel(pickOf(this.client.streams.keys(), step.pick));
    if (step.kind === 'initial') peers[step.who]!.changeInitial(step.size);
    if (step.kind === 'wait') await settled();
    this.collect();
  }

  /** Lets all peers read everything and return windows, until all streams have ended. */
  async finish(clientWindow: number): Promise<void> {
    for (let idle = 0, before = -1; idle < 10; ) {
      await settled();
      this.collect();
      const peers = [this.client, this.backend, ...(this.local === undefined ? [] : [this.local])];
      for (const peer of peers) while (peer.step());
      for (const peer of peers) {
        const window = peer === this.client ? clientWindow : 65_535;
        if (peer.granted < window) peer.grant(0, window - peer.granted);
        for (const [id, stream] of peer.streams) {
          if (stream.granted < 30_000) peer.grant(id, 30_000 - stream.granted);
          peer.sendSome(id, 1_000_000);
        }
      }
      this.collect();
      if ([...this.client.streams.values()].every(({ ended, rest }) => ended && rest.length === 0)) return;
      const now = peers.reduce((sum, { read }) => sum + read, 0);
      idle = now === before ? idle + 1 : 0;
      before = now;
    }
    throw new Error('stuck');
  }
}

describe('flow control', () => {
  test('no window is ever exceeded and every byte arrives, for any traffic and window changes', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(action, { minLength: 5, maxLength: 120 }),
        fc.oneof(fc.integer({ min: 200, max: 9000 }), fc.constantFrom(65_535, MiB)),
        fc.constantFrom(0, 3000, MiB),
        fc.constantFrom(0, 200_000, 2 ** 31 - 1),
        async (steps, window, readAhead, queueLimit) => {
          const world = new World(readAhead, queueLimit);
          for (const step of steps) await world.act(step);
          await world.finish(window);
          for (const [id, stream] of world.client.streams) {
            const its = world.client.plans.get(id)!;
            const { up } = contents(id, its);
            const isLimited = queueLimit < 2 ** 31 - 1;
            expect(arrived(Buffer.concat(stream.received), messagesOf(id, its), isLimited)).toBe(true);
            const server = its.route === 'handle' ? world.local! : world.backend;
            expect(Buffer.concat(server.uploads.get(id)!.received).equals(up)).toBe(true);
          }
          // When everything is delivered, the backend's window is the client's plus the read-ahead, within the limit.
          await world.finish(500_000);
          await world.finish(500_000);
          const wanted = world.client.granted + readAhead;
          const least = Math.min(wanted, 0.75 * Math.max(65_535, queueLimit));
          expect(world.backend.window).toBeGreaterThanOrEqual(least);
          // The first bytes of a held message return their window at once, also if a grant has already replaced them.
          const most = Math.max(65_535, queueLimit) + FRAME_SIZE;
          expect(world.backend.window).toBeLessThanOrEqual(most);
          expect(world.proxy.core.streams.running).toBe(0);
          expect(world.proxy.core.held.total).toBe(0);
          expect(world.proxy.events.filter((event) => !/ (answered|cancelled) | memory$/.test(event))).toEqual([]);
        },
      ),
      { numRuns: 500, examples: [[[{ kind: 'start', plan: HELD_AFTER_OTHERS }], 200, 0, 0]] },
    );
  }, 240_000);
});
