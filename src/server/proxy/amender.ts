import { type Frame, windowUpdate } from '../../http2/index.ts';
import type { ConnectionParts } from './connection-parts.ts';
import type { SkipReason } from './interception.ts';
import type { AmendStream } from './stream.ts';

/** Copies requests, holds responses until they are complete, has them amended and sends them to the client. */
export class Amender {
  constructor(private readonly parts: ConnectionParts) {}

  /** Copies a part of the request, which is forwarded meanwhile. */
  request(stream: AmendStream, part: Buffer): void {
    const { request, state } = stream.amendment;
    if (state.kind === 'passing') return;
    const before = request.size;
    const collected = request.add(part);
    const { held } = this.parts;
    if (collected === 'unusable' || held.wouldExceed(request.size)) request.clear();
    held.add(request.size - before);
  }

  /** Holds the response's first HEADERS. Returns false if they are to be forwarded instead. */
  head(stream: AmendStream, bytes: Buffer): boolean {
    const { amendment } = stream;
    if (amendment.state.kind !== 'collecting' || stream.answered || amendment.head !== undefined) return false;
    amendment.head = Buffer.from(bytes);
    this.#hold(stream);
    return true;
  }

  /** Holds a part of the response. */
  response(stream: AmendStream, frame: Frame): void {
    const parts = this.parts;
    const { amendment } = stream;
    this.#hold(stream);
    parts.backend.flow.queued(frame.length);
    amendment.charged += frame.length;
    amendment.last = stream.serverEnded;
    const { response } = amendment;
    const before = response.size;
    const collected = response.add(frame.content());
    parts.held.add(response.size - before);
    if (collected === 'unusable') this.#skip(stream, 'response', undefined);
    else if (collected === 'complete') this.#amend(stream);
    else if (amendment.last) this.#skip(stream, 'response', undefined);
    else if (parts.held.wouldExceed(response.missing) || parts.backend.flow.isOverfull)
      this.#skip(stream, 'memory', undefined);
    else this.#creditBackend(stream);
  }

  /** Handles trailers or a reset: no further part of the message will arrive. */
  responseEnds(stream: AmendStream): void {
    const { amendment } = stream;
    if (amendment.state.kind !== 'collecting') return;
    if (amendment.response.size > 0) this.#skip(stream, 'response', undefined);
    else if (amendment.holding) this.#release(stream, undefined);
    else this.finish(stream);
  }

  /** Frees the bytes held for a stream. Returns whether they include a part of the response, which is then lost. */
  finish(stream: AmendStream): boolean {
    const { amendment } = stream;
    const { holding, charged } = amendment;
    this.parts.held.add(-amendment.request.size - amendment.response.size);
    amendment.finish();
    this.parts.backend.flow.released(stream.down, charged);
    return holding;
  }

  #hold(stream: AmendStream): void {
    if (stream.amendment.holding) return;
    stream.amendment.holding = true;
    this.parts.flowControl.hold(stream.down);
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
    const { amendment, path } = stream;
    if (amendment.state.kind !== 'collecting') return;
    if (amendment.request.state !== 'complete') {
      this.#skip(stream, 'request', undefined);
      return;
    }
    const { interception, amendTimeout, now } = this.parts.options;
    const { results } = this.parts;
    const skip = (reason: SkipReason, error: unknown): void => results.add(() => this.#skip(stream, reason, error));
    const exchange = {
      path,
      request: amendment.request.message(),
      response: amendment.response.message(),
      backendMs: now() - stream.forwardedAt,
    };
    try {
      const answer = interception.amend(exchange);
      if (!(answer instanceof Promise)) {
        this.#release(stream, answer);
        return;
      }
      amendment.state = { kind: 'waiting', timer: setTimeout(() => skip('slow', undefined), amendTimeout) };
      results.runSoon();
      answer.then(
        (amended) => results.add(() => this.#release(stream, amended)),
        (error: unknown) => skip('failed', error),
      );
    } catch (error) {
      this.#skip(stream, 'failed', error);
    }
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
