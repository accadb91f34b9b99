import type { SkipReason } from './observer.ts';
import type { AmendStream } from './stream.ts';
import type { Switch } from './connection.ts';
import { type Frame, windowUpdate } from '../http2/index.ts';

/** Reads requests on the way, holds responses, asks what they shall be, and lets them go. */
export class Amender {
  /** Bytes of requests and responses that are kept, of all streams. */
  #kept = 0;
  /** What has come of the amendments since the last turn. */
  #results: (() => void)[] = [];
  #turnIsNear = false;
  readonly #switch: Switch;

  constructor(core: Switch) {
    this.#switch = core;
  }

  get kept(): number {
    return this.#kept;
  }

  /** A part of the request, which passes. */
  request(stream: AmendStream, part: Buffer): void {
    const { request, state } = stream.amendment;
    if (state.kind === 'passing') return;
    const before = request.size;
    const collected = request.add(Buffer.from(part));
    if (collected === 'unfit' || this.#kept + request.size > this.#switch.options.heldLimit) request.clear();
    this.#kept += request.size - before;
  }

  /** The response's first HEADERS. Returns whether they are held; else they pass. */
  head(stream: AmendStream, bytes: Buffer): boolean {
    const { amendment } = stream;
    if (amendment.state.kind !== 'collecting' || stream.answered || amendment.head !== undefined) return false;
    amendment.head = Buffer.from(bytes);
    this.#hold(stream);
    return true;
  }

  /** A part of the response, which is held. */
  response(stream: AmendStream, frame: Frame): void {
    const core = this.#switch;
    const { amendment } = stream;
    this.#hold(stream);
    core.backend.flow.kept(frame.length);
    amendment.charged += frame.length;
    amendment.last = stream.serverEnded;
    const { response } = amendment;
    const before = response.size;
    const collected = response.add(Buffer.from(frame.content()));
    this.#kept += response.size - before;
    if (collected === 'unfit') this.#skip(stream, 'response', undefined);
    else if (collected === 'whole') this.#ask(stream);
    else if (amendment.last) this.#skip(stream, 'response', undefined);
    else if (this.#kept + response.missing > core.options.heldLimit) this.#skip(stream, 'memory', undefined);
    else this.#forgive(stream);
  }

  /** Trailers or a reset: if the message is not whole by now, it never will be. */
  responseEnds(stream: AmendStream): void {
    const { amendment } = stream;
    if (amendment.state.kind !== 'collecting') return;
    if (amendment.response.size > 0) this.#skip(stream, 'response', undefined);
    else if (amendment.holding) this.#release(stream, undefined);
    else this.finish(stream);
  }

  #hold(stream: AmendStream): void {
    if (stream.amendment.holding) return;
    stream.amendment.holding = true;
    this.#switch.gate.hold(stream.down);
  }

  /** Lets go of what is kept. Returns whether any of the response was held, and so is lost. */
  finish(stream: AmendStream): boolean {
    const { amendment } = stream;
    const { holding, charged } = amendment;
    this.#kept -= amendment.request.size + amendment.response.size;
    amendment.finish();
    this.#switch.backend.flow.left(stream.down, charged);
    return holding;
  }

  /** The backend is to go on sending a message that we hold, however small the client's windows are. */
  #forgive(stream: AmendStream): void {
    const { amendment } = stream;
    const { charged } = amendment;
    if (charged === 0) return;
    const { backend, toBackend } = this.#switch;
    amendment.charged = 0;
    amendment.allowance += charged;
    backend.flow.forgiven(charged);
    toBackend.push(windowUpdate(stream.id, charged));
    toBackend.push(windowUpdate(0, charged));
  }

  /** The response is whole: asks what it shall be. */
  #ask(stream: AmendStream): void {
    const { amendment, path } = stream;
    if (amendment.state.kind !== 'collecting') return;
    if (amendment.request.state !== 'whole') {
      this.#skip(stream, 'request', undefined);
      return;
    }
    const { interception, amendTimeout, now } = this.#switch.options;
    const later = (action: () => void): void => {
      this.#results.push(action);
      this.#soon();
    };
    const skip = (reason: SkipReason, error: unknown): void => later(() => this.#skip(stream, reason, error));
    const exchange = {
      path,
      request: amendment.request.message(),
      response: amendment.response.message(),
      backendMs: now() - stream.openedAt,
    };
    try {
      const answer = interception.amend(exchange);
      if (!(answer instanceof Promise)) {
        this.#release(stream, answer);
        return;
      }
      amendment.state = { kind: 'asking', timer: setTimeout(() => skip('slow', undefined), amendTimeout) };
      this.#soon();
      answer.then(
        (amended) => later(() => this.#release(stream, amended)),
        (error: unknown) => skip('failed', error),
      );
    } catch (error) {
      this.#skip(stream, 'failed', error);
    }
  }

  /** Whether what the client gets is about to be completed: until then it is worth waiting with what there is. */
  get turnIsNear(): boolean {
    return this.#turnIsNear;
  }

  /**
   * Runs the results together, once no promise has anything left to do: amendments that take no longer than that, those of
   * all responses that came in one read, leave in one write.
   */
  #soon(): void {
    if (this.#turnIsNear) return;
    this.#turnIsNear = true;
    // A tick that is asked for by a microtask comes after all microtasks; one asked for here would come before them.
    queueMicrotask(() =>
      process.nextTick(() => {
        this.#turnIsNear = false;
        const results = this.#results.splice(0);
        this.#switch.run('backend', () => {
          for (const result of results) result();
        });
      }),
    );
  }

  /** The response goes as it came. */
  #skip(stream: AmendStream, reason: SkipReason, error: unknown): void {
    if (stream.amendment.state.kind === 'passing') return;
    this.#switch.options.observer.amendSkipped(stream.path, reason, error);
    this.#release(stream, undefined);
  }

  #release(stream: AmendStream, amended: Uint8Array | undefined): void {
    const { amendment } = stream;
    if (amendment.state.kind === 'passing') return;
    const { charged, head, last } = amendment;
    const parts = amendment.release(amended);
    amendment.charged = 0;
    this.finish(stream);
    if (head !== undefined) stream.answered = true;
    this.#switch.gate.release(stream.down, head, parts, charged, last);
    this.#switch.backend.grantStream(stream);
  }
}
