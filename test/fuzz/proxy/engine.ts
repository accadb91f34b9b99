import { setImmediate as nextTurn } from 'node:timers/promises';
import { ErrorCode } from '../../../src/http2/errors.ts';
import { ProxyConnection } from '../../../src/server/proxy/connection.ts';
import {
  type Amend,
  type HandledAnswer,
  type HandledCall,
  NO_OBSERVER,
  type ProxyObserver,
} from '../../../src/server/proxy/interception.ts';
import { LIMITS, SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import { FakeTransport, PREFACE, parseFrames, routeOf } from '../../support/http2/wire.ts';
import { Random } from '../random.ts';
import { Finding } from '../target.ts';
import type { Step } from './corpus.ts';
import { CORPUS } from './corpus.ts';
import { mutate } from './mutate.ts';

/** Counts how inputs ended, to check that they reach relevant states. */
export interface Tally {
  inputs: number;
  /** Inputs after which the connection was still open. */
  survived: number;
  clientErrors: number;
  backendErrors: number;
  localErrors: number;
  amended: number;
  /** Calls that the proxy itself served. */
  handled: number;
  /** Requests that were held back. */
  delayed: number;
}

export const emptyTally = (): Tally => ({
  inputs: 0,
  survived: 0,
  clientErrors: 0,
  backendErrors: 0,
  localErrors: 0,
  amended: 0,
  handled: 0,
  delayed: 0,
});

/**
 * One budget for all inputs, as for all connections of a socket. A budget keeps memory for reuse for some seconds, so
 * thousands of budgets would look like a leak. Each input must return everything that it takes.
 */
const shared = new SharedBudget({
  ...SHARED_LIMITS,
  // Small reserves for each connection, so that small inputs use the shared amounts.
  held: { reserved: 10_000, all: 30_000 },
  streams: { ...SHARED_LIMITS.streams, reserved: 2 },
  calls: { ...SHARED_LIMITS.calls, reserved: 1 },
});

/** Returns the parts of the shared budget that are in use. */
const inUse = () => ({
  heldBytes: shared.held.total,
  queuedBytes: shared.queued.total,
  lingering: shared.lingering.count,
  streams: shared.streams.beyond,
  calls: shared.calls.all.beyond,
  compressedCalls: shared.calls.compressed.total,
  requestBytes: shared.requests.total,
});

/** Returns the input with this seed and index. */
export function inputOf(seed: number, index: number): { steps: Step[]; random: Random } {
  const random = new Random(seed, index);
  return { steps: mutate(random.pick(CORPUS), random), random };
}

/** Plays one input through a new proxy connection. @throws Finding */
export async function play(seed: number, index: number, tally: Tally): Promise<void> {
  const { steps, random } = inputOf(seed, index);
  const run = new Run(random, tally);
  for (const step of steps) {
    run.send(step);
    // Waits for amendments between inputs.
    if (run.amendmentRequested && random.chance(2)) await nextTurn();
    if (random.chance(60)) run.accident();
  }
  if (run.amendmentRequested) await nextTurn();
  run.finish();
}

class Run {
  /** Whether any amendment was requested. */
  amendmentRequested = false;
  readonly #random: Random;
  readonly #tally: Tally;
  readonly #core: ProxyConnection;
  readonly #ends = new Map<string, FakeTransport>();
  readonly #all: FakeTransport[] = [];
  #clock = 0;
  /** An internal error that the proxy reported. */
  #finding: string | undefined;

  constructor(random: Random, tally: Tally) {
    this.#random = random;
    this.#tally = tally;
    const observer: ProxyObserver = {
      ...NO_OBSERVER,
      wantsStatus: random.chance(2),
      protocolError: (side, code, message) => {
        // The proxy handles its own errors, so the fuzzer looks for their code.
        if (code === ErrorCode.INTERNAL_ERROR) this.#finding ??= `internal error on the ${side} side: ${message}`;
        tally[`${side}Errors`] += 1;
      },
    };
    this.#core = new ProxyConnection(
      {
        ...LIMITS,
        shared,
        clientHeaderListLimit: 2000,
        streamLimit: 20,
        settingsLimit: 5,
        queueLimit: 100_000,
        // Small limits, so that small inputs reach them.
        headerListLimit: 2000,
        requestLimit: 200,
        responseLimit: 20_000,
        delayLimit: 200,
        deferredWriteDelay: random.below(2),
        readAhead: random.below(2) * 100_000,
        observer,
        interception: {
          route: routeOf,
          amend: ({ response }) => this.#amend(response),
          prepare: () => this.#prepare(),
          amendMessage: (_, message) => this.#amendMessage(message),
          isDelayed: () => random.chance(2),
          delay: () => this.#delay(),
        },
        now: () => this.#clock,
        connectLocal: (events) => this.#end('local', events),
        // Without it, the local server gets every handled call.
        handle: random.chance(3) ? (call, respond) => this.#handle(call, respond) : undefined,
      },
      (side, events) => this.#end(side, events),
    );
  }

  /** Sends a step's bytes in one piece or in chunks. */
  send({ side, bytes }: Step): void {
    const end = this.#ends.get(side);
    if (end === undefined || end.destroyed) return;
    this.#clock += this.#random.below(50);
    const chunk = this.#random.chance(4) ? 1 + this.#random.below(40) : bytes.length;
    for (let at = 0; at < bytes.length; at += chunk) end.send(bytes.subarray(at, at + chunk));
    this.#look();
  }

  /** Simulates a random event: a closed connection, a shutdown, a backlog. */
  accident(): void {
    const end = this.#random.pick(this.#all);
    const kind = this.#random.below(6);
    if (kind === 0) end.events.closed(this.#random.chance(2) ? new Error('gone') : undefined);
    else if (kind === 1) this.#core.shutdown();
    else end.backlog = this.#random.pick([0, 300_000, 2_000_000]);
    end.events.drained();
  }

  finish(): void {
    this.#tally.inputs += 1;
    const { kind } = this.#core.state;
    if (kind === 'open' || kind === 'draining') this.#tally.survived += 1;
    for (const end of this.#all.reverse()) end.events.closed(undefined);
    this.#look();
    if (this.#core.state.kind !== 'closed') throw new Finding(`ended in the state ${this.#core.state.kind}`);
    if (this.#core.streams.running > 0) throw new Finding('streams are left');
    if (this.#core.held.total !== 0) throw new Finding(`${this.#core.held.total} bytes are left`);
    const left = Object.entries(inUse()).filter(([, count]) => count !== 0);
    if (left.length > 0)
      throw new Finding(`left in the shared budget: ${left.map((pair) => pair.join(' ')).join(', ')}`);
  }

  /** Answers at once, later or never, with a message or a failure. */
  #handle(call: HandledCall, respond: (answer: HandledAnswer) => void): void {
    this.amendmentRequested = true;
    this.#tally.handled += 1;
    const kind = this.#random.below(6);
    const failure = { code: 5, details: 'nöt found', trailers: [['x-bin', 'AAE=']] } as const;
    const answer = kind < 2 ? failure : Buffer.concat([call.request, Buffer.alloc(this.#random.below(30_000), '=')]);
    if (kind === 5) return;
    if (this.#random.chance(2)) call.signal.addEventListener('abort', () => respond(answer));
    if (kind % 2 === 0) queueMicrotask(() => respond(answer));
    else void nextTurn().then(() => respond(answer));
  }

  /** At once, or later. */
  #amendMessage(message: Uint8Array): Promise<Uint8Array | undefined> | Uint8Array | undefined {
    if (this.#random.chance(2)) return this.#amend(message);
    this.#tally.amended += 1;
    return this.#random.chance(2) ? undefined : Buffer.concat([message, Buffer.alloc(this.#random.below(200), '-')]);
  }

  /** At once, later, or never. */
  #delay(): Promise<void> | undefined {
    const kind = this.#random.below(8);
    if (kind > 3) return undefined;
    this.amendmentRequested = true;
    this.#tally.delayed += 1;
    if (kind === 0) return Promise.reject(new Error('refused'));
    return kind === 1 ? new Promise(() => undefined) : Promise.resolve();
  }

  /** Prepares some calls. Their answers are mostly known at once. */
  #prepare(): Amend | undefined {
    if (this.#random.chance(2)) return undefined;
    return ({ response }) => {
      if (this.#random.chance(4)) return this.#amend(Buffer.from(response));
      this.#tally.amended += 1;
      return this.#random.chance(4) ? undefined : Buffer.concat([response, Buffer.alloc(this.#random.below(200), '+')]);
    };
  }

  #amend(response: Uint8Array): Promise<Uint8Array | undefined> {
    this.amendmentRequested = true;
    this.#tally.amended += 1;
    const kind = this.#random.below(8);
    if (kind === 0) return Promise.reject(new Error('refused'));
    if (kind === 1) throw new Error('thrown');
    if (kind === 2) return Promise.resolve(undefined);
    // Mostly the response with bytes appended, sometimes a different message.
    const added = Buffer.alloc(this.#random.below(200), '+');
    return Promise.resolve(kind === 3 ? added : Buffer.concat([response, added]));
  }

  #end(side: string, events: FakeTransport['events']): FakeTransport {
    const end = new FakeTransport(events);
    this.#ends.set(side, end);
    this.#all.push(end);
    return end;
  }

  /** Checks that the proxy writes only complete frames of an acceptable length. */
  #look(): void {
    if (this.#finding !== undefined) throw new Finding(this.#finding);
    for (const end of this.#all) {
      const bytes = end.takeBytes();
      if (bytes.length === 0) continue;
      const { frames, rest } = parseFrames(bytes.indexOf(PREFACE) === 0 ? bytes.subarray(PREFACE.length) : bytes);
      if (rest.length > 0) throw new Finding('a partial frame was written');
      if (frames.some(({ payload }) => payload.length > 20_000)) throw new Finding('a frame longer than allowed');
    }
  }
}
