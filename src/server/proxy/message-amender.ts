import { MESSAGE_PREFIX_SIZE } from '../../core/index.ts';
import { type Frame, windowUpdate } from '../../http2/index.ts';
import type { ConnectionParts } from './connection-parts.ts';
import { messageParts } from './held-messages.ts';
import type { SkipReason } from './interception.ts';
import type { MessageAmendStream } from './stream.ts';

/**
 * Holds each message of a stream until it is complete, has it amended and sends it to the client, one after the other.
 * Between messages a stream holds nothing: no memory, no timer and no window.
 *
 * A client that does not read bounds what waits for it: the backend gets window for bytes that the client has not taken
 * only to complete one message, and only if nothing else waits for the client.
 */
export class MessageAmender {
  /** Streams whose first message is incomplete and waits until the client has received earlier messages. */
  readonly #blocked = new Set<MessageAmendStream>();

  constructor(private readonly parts: ConnectionParts) {}

  /** Takes a part of the response. */
  response(stream: MessageAmendStream, frame: Frame): void {
    const { amendment, down } = stream;
    const { backend, flowControl, held } = this.parts;
    const content = frame.content();
    amendment.last = stream.serverEnded;
    amendment.ended = amendment.last;
    if (!amendment.holding) {
      if (content.length === 0) {
        flowControl.data(down, content, 0, amendment.last);
        return;
      }
      amendment.holding = true;
      flowControl.hold(down);
    }
    // Padding is not held: its window goes back to the backend at once.
    backend.flow.queued(content.length);
    held.add(content.length);
    amendment.buffer.add(content);
    if (amendment.waiting === undefined) this.#advance(stream);
  }

  /** Handles trailers, a reset or the loss of the backend. They follow the held bytes. */
  responseEnds(stream: MessageAmendStream): void {
    const { amendment } = stream;
    amendment.ended = true;
    if (amendment.holding && amendment.waiting === undefined) this.#settle(stream);
  }

  /** Frees what is held for a stream. */
  finish(stream: MessageAmendStream): void {
    const { amendment } = stream;
    const { charged, held, waiting } = amendment;
    if (waiting !== undefined) clearTimeout(waiting.timer);
    amendment.buffer.takeRest();
    amendment.waiting = undefined;
    amendment.holding = false;
    amendment.credited = 0;
    this.#blocked.delete(stream);
    this.parts.held.add(-held);
    this.parts.backend.flow.released(stream.down, charged);
  }

  /** Continues streams whose earlier messages have been sent to the client. Call it at the end of each event. */
  resume(): void {
    for (const stream of this.#blocked) if (stream.down.charged === 0) this.#credit(stream);
  }

  /** Handles received messages, up to one whose amendment is not available at once. */
  #advance(stream: MessageAmendStream): void {
    const { buffer } = stream.amendment;
    this.#blocked.delete(stream);
    for (let piece = buffer.take(); piece !== undefined; piece = buffer.take()) {
      if (piece.kind === 'pass') {
        if (piece.begins) this.#skipped(stream, 'response', undefined);
        this.#send(stream, piece.bytes, undefined);
      } else if (!this.#amend(stream, piece.bytes)) return;
    }
    this.#settle(stream);
  }

  /** Has a message amended. Returns false if the answer is not known yet. */
  #amend(stream: MessageAmendStream, bytes: Buffer): boolean {
    let amended: Uint8Array | undefined;
    try {
      const answer = this.parts.options.interception.amendMessage(stream.path, bytes.subarray(MESSAGE_PREFIX_SIZE));
      if (answer instanceof Promise) {
        this.#wait(stream, bytes, answer);
        return false;
      }
      amended = answer;
    } catch (error) {
      this.#skipped(stream, 'failed', error);
    }
    this.#send(stream, bytes, amended);
    return true;
  }

  #wait(stream: MessageAmendStream, bytes: Buffer, answer: Promise<Uint8Array | undefined>): void {
    const { amendment } = stream;
    const { options, results } = this.parts;
    const answered = (act: () => Uint8Array | undefined): void =>
      results.add(() => {
        if (amendment.waiting !== waiting) return;
        clearTimeout(waiting.timer);
        amendment.waiting = undefined;
        this.#send(stream, bytes, act());
        this.#advance(stream);
      });
    const skip = (reason: SkipReason, error: unknown): void =>
      answered(() => {
        this.#skipped(stream, reason, error);
        return undefined;
      });
    const waiting = { bytes, timer: setTimeout(() => skip('slow', undefined), options.amendTimeout) };
    amendment.waiting = waiting;
    results.runSoon();
    answer.then(
      (amended) => answered(() => amended),
      (error: unknown) => skip('failed', error),
    );
  }

  /** Sends held bytes, or the amended message instead of them. Bytes behind them stay held. */
  #send(stream: MessageAmendStream, bytes: Buffer, amended: Uint8Array | undefined): void {
    const { amendment, down } = stream;
    const { backend, flowControl, held } = this.parts;
    held.add(-bytes.length);
    // From now on the message waits only for the client: until it is sent, the backend has no window for it.
    const credited = Math.min(amendment.credited, bytes.length);
    amendment.credited -= credited;
    backend.flow.queued(credited);
    flowControl.insert(down, amended === undefined ? [bytes] : messageParts(amended), bytes.length);
  }

  /** Decides what to do with an incomplete rest that can be neither sent nor amended yet. */
  #settle(stream: MessageAmendStream): void {
    const { amendment, down } = stream;
    const { buffer } = amendment;
    const { backend, flowControl, held } = this.parts;
    if (amendment.ended && buffer.size > 0) {
      this.#skipped(stream, 'response', undefined);
      this.#send(stream, buffer.takeRest(), undefined);
    }
    if (buffer.size === 0) {
      amendment.holding = false;
      flowControl.release(down, undefined, [], 0, amendment.last);
    } else if (buffer.size >= MESSAGE_PREFIX_SIZE && (held.wouldExceed(buffer.missing) || backend.flow.isOverfull)) {
      this.#skipped(stream, 'memory', undefined);
      buffer.pass();
      this.#advance(stream);
      return;
    } else if (down.charged === 0) this.#credit(stream);
    else this.#blocked.add(stream);
    backend.grantStream(stream);
  }

  /** Returns window to the backend, so that it completes a message however small the client's windows are. */
  #credit(stream: MessageAmendStream): void {
    const { amendment } = stream;
    const { backend, toBackend } = this.parts;
    this.#blocked.delete(stream);
    const { charged } = amendment;
    if (charged === 0) return;
    amendment.credited += charged;
    amendment.allowance += charged;
    backend.flow.credited(charged);
    toBackend.push(windowUpdate(stream.id, charged));
    toBackend.push(windowUpdate(0, charged));
  }

  #skipped(stream: MessageAmendStream, reason: SkipReason, error: unknown): void {
    this.parts.options.observer.amendSkipped(stream.path, reason, error);
  }
}
