import { MESSAGE_PREFIX_SIZE } from '../../core/index.ts';
import { type Frame, windowUpdate } from '../../http2/index.ts';
import type { ConnectionParts } from './connection-parts.ts';
import { messageSize } from './grpc.ts';
import { messageParts } from './held-messages.ts';
import type { Amend, SkipReason } from './interception.ts';
import type { Collected } from './message-collector.ts';
import type { AmendStream } from './stream.ts';

/** Copies requests, holds responses until they are complete, has them amended and sends them to the client. */
export class Amender {
  /** Streams whose HEADERS have come in this event of the connection. */
  #heads: AmendStream[] = [];
  /** Streams whose request has become complete in this event of the connection. */
  #requested: AmendStream[] = [];

  constructor(private readonly parts: ConnectionParts) {}

  /** Copies a part of the request, which is forwarded meanwhile. */
  request(stream: AmendStream, part: Buffer): void {
    const { request, state } = stream.amendment;
    if (state.kind === 'passing') return;
    const before = request.size;
    const wasComplete = request.state === 'complete';
    const collected = request.add(part);
    const { held } = this.parts;
    const isUsable = collected !== 'unusable' && !held.wouldExceed(request.size);
    if (!isUsable) {
      request.clear();
      stream.amendment.prepared = undefined;
    }
    held.add(request.size - before);
    if (isUsable && collected === 'complete' && !wasComplete) this.#requested.push(stream);
  }

  /** Prepares amendments whose requests have just been written to the backend. */
  prepare(): void {
    if (this.#requested.length === 0) return;
    const streams = this.#requested;
    this.#requested = [];
    for (const stream of streams) {
      const { delay } = stream;
      const isForwarded = delay === undefined || delay.isOver;
      if (isForwarded && stream.amendment.request.state === 'complete') this.#prepare(stream);
    }
  }

  #prepare({ amendment, path }: AmendStream): void {
    const { interception, observer } = this.parts.options;
    try {
      amendment.prepared = interception.prepare?.(path, amendment.request.message());
    } catch (error) {
      observer.amendSkipped(path, 'failed', error);
    }
  }

  /** Holds the response's first HEADERS. Returns false if they are to be forwarded instead. */
  head(stream: AmendStream, bytes: Buffer): boolean {
    const { amendment } = stream;
    if (amendment.state.kind !== 'collecting' || stream.answered) return false;
    if (amendment.head !== undefined) {
      // No gRPC server sends headers twice. All that follows is forwarded.
      this.#hold(stream);
      this.#skip(stream, 'response', undefined);
      return false;
    }
    amendment.head = amendment.holding ? Buffer.from(bytes) : bytes;
    // Most messages come with them, and then they need no copy.
    if (!amendment.holding) this.#heads.push(stream);
    return true;
  }

  /** Copies what is held of responses that have just been read: the memory of a read is used again. */
  keep(): void {
    if (this.#heads.length === 0) return;
    for (const stream of this.#heads) if (stream.amendment.head !== undefined) this.#hold(stream);
    this.#heads = [];
  }

  /** Takes a part of the response. Returns false if it is to be forwarded unchanged. */
  response(stream: AmendStream, frame: Frame): boolean {
    const { amendment } = stream;
    const { prepared } = amendment;
    amendment.last = stream.serverEnded;
    const message = prepared === undefined || amendment.holding ? undefined : this.#messageIn(frame);
    if (prepared === undefined || message === undefined) {
      this.#collect(stream, frame);
      return true;
    }
    const answer = this.#ask(stream, prepared, message);
    const isPending = answer instanceof Promise;
    if (!isPending && this.#send(stream, answer)) return answer !== undefined;
    this.#add(stream, frame);
    if (isPending) this.#wait(stream, answer);
    else this.#release(stream, answer);
    return true;
  }

  /** Handles trailers or a reset: no further part of the message will arrive. */
  responseEnds(stream: AmendStream): void {
    const { amendment } = stream;
    if (amendment.state.kind !== 'collecting') return;
    if (amendment.head !== undefined) this.#hold(stream);
    if (amendment.response.size > 0) this.#skip(stream, 'response', undefined);
    else if (amendment.holding) this.#release(stream, undefined);
    else this.finish(stream);
  }

  /** Frees the bytes held for a stream. Returns whether they include a part of the response, which is then lost. */
  finish(stream: AmendStream): boolean {
    const { amendment } = stream;
    const { charged, head, holding } = amendment;
    this.parts.held.add(-amendment.request.size - amendment.response.size);
    amendment.finish();
    this.parts.backend.flow.released(stream.down, charged);
    return holding || head !== undefined;
  }

  #hold({ amendment, down }: AmendStream): void {
    if (amendment.holding) return;
    amendment.holding = true;
    amendment.head = amendment.head && Buffer.from(amendment.head);
    this.parts.flowControl.hold(down);
  }

  /** Returns the message of a frame that contains all of it and nothing else. */
  #messageIn(frame: Frame): Buffer | undefined {
    const content = frame.content();
    const isWhole = content.length >= MESSAGE_PREFIX_SIZE && messageSize(content) === content.length;
    if (!isWhole || content[0] !== 0 || content.length > this.parts.options.responseLimit) return undefined;
    return content.subarray(MESSAGE_PREFIX_SIZE);
  }

  /** Holds a copy of a part of the response. */
  #add(stream: AmendStream, frame: Frame): Collected {
    const { parts } = this;
    const { amendment } = stream;
    this.#hold(stream);
    parts.backend.flow.queued(frame.length);
    amendment.charged += frame.length;
    const { response } = amendment;
    const before = response.size;
    const collected = response.add(frame.content());
    parts.held.add(response.size - before);
    return collected;
  }

  /** Holds a part of the response, and has the response amended if that completes it. */
  #collect(stream: AmendStream, frame: Frame): void {
    const { backend, held } = this.parts;
    const { amendment } = stream;
    const collected = this.#add(stream, frame);
    if (collected === 'unusable') this.#skip(stream, 'response', undefined);
    else if (collected === 'complete') this.#amend(stream);
    else if (amendment.last) this.#skip(stream, 'response', undefined);
    else if (held.wouldExceed(amendment.response.missing) || backend.flow.isOverfull)
      this.#skip(stream, 'memory', undefined);
    else this.#creditBackend(stream);
  }

  /** Returns window to the backend, so that it completes a held message however small the client's windows are. */
  #creditBackend(stream: AmendStream): void {
    const { amendment } = stream;
    const { charged } = amendment;
    if (charged === 0) return;
    const { backend, toBackend } = this.parts;
    amendment.charged = 0;
    amendment.allowance += charged;
    backend.flow.credited(charged);
    toBackend.push(windowUpdate(stream.id, charged));
    toBackend.push(windowUpdate(0, charged));
  }

  /** Has a complete response amended. */
  #amend(stream: AmendStream): void {
    const { amendment } = stream;
    if (amendment.state.kind !== 'collecting') return;
    if (amendment.request.state !== 'complete') {
      this.#skip(stream, 'request', undefined);
      return;
    }
    const amend = amendment.prepared ?? this.parts.options.interception.amend;
    const answer = this.#ask(stream, amend, amendment.response.message());
    if (answer instanceof Promise) this.#wait(stream, answer);
    else this.#release(stream, answer);
  }

  /** Asks the interceptor. If it fails, the response stays as it is. */
  #ask({ amendment, forwardedAt, path }: AmendStream, amend: Amend, response: Buffer): ReturnType<Amend> {
    const { now, observer } = this.parts.options;
    try {
      return amend({ path, request: amendment.request.message(), response, backendMs: now() - forwardedAt });
    } catch (error) {
      observer.amendSkipped(path, 'failed', error);
      return undefined;
    }
  }

  #wait(stream: AmendStream, answer: Promise<Uint8Array | undefined>): void {
    const { options, results } = this.parts;
    const skip = (reason: SkipReason, error: unknown): void => results.add(() => this.#skip(stream, reason, error));
    const timer = setTimeout(() => skip('slow', undefined), options.amendTimeout);
    stream.amendment.state = { kind: 'waiting', timer };
    results.runSoon();
    answer.then(
      (amended) => results.add(() => this.#release(stream, amended)),
      (error: unknown) => skip('failed', error),
    );
  }

  /**
   * Sends a response that nothing is held of, or only its HEADERS if the interceptor has not changed it. Returns false
   * if the client's windows do not allow it.
   */
  #send(stream: AmendStream, amended: Uint8Array | undefined): boolean {
    const { amendment, down } = stream;
    const { backend, flowControl, streams } = this.parts;
    const { head, last } = amendment;
    amendment.head = undefined;
    if (head !== undefined) {
      stream.answered = true;
      flowControl.frames(down, head, 0, head.length, false);
    }
    if (amended !== undefined && !flowControl.send(down, messageParts(amended), last)) return false;
    this.finish(stream);
    if (amended === undefined) return true;
    if (last) streams.delivered(down);
    backend.grantStream(stream);
    return true;
  }

  /** Sends the response as received. */
  #skip(stream: AmendStream, reason: SkipReason, error: unknown): void {
    if (stream.amendment.state.kind === 'passing') return;
    this.parts.options.observer.amendSkipped(stream.path, reason, error);
    this.#release(stream, undefined);
  }

  #release(stream: AmendStream, amended: Uint8Array | undefined): void {
    const { amendment } = stream;
    if (amendment.state.kind === 'passing') return;
    const { backend, flowControl } = this.parts;
    const { charged, head, last, response } = amendment;
    // From now on the message waits only for the client: the backend gets no further window for it.
    const credited = Math.max(0, response.size - charged);
    const parts = amendment.release(amended);
    amendment.charged = 0;
    this.finish(stream);
    if (head !== undefined) stream.answered = true;
    if (credited > 0) backend.flow.queued(credited);
    flowControl.release(stream.down, head, parts, charged + credited, last);
    backend.grantStream(stream);
  }
}
