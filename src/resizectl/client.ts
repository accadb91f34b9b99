import { once } from 'node:events';
import {
  Client,
  type ClientReadableStream,
  credentials,
  Metadata as JsMetadata,
  type ServiceError,
} from '@grpc/grpc-js';
import { Metadata, MiB, wallTime } from '../core/index.ts';
import { decodeResponse, encode, type Messages, PACKAGE, type Requests } from '../server/api/messages.ts';
import { UsageError } from './output/failure.ts';
import { sayingWaits } from './waiting.ts';

type Method = 'ResizePod' | 'GetPod' | 'ListPods' | 'GetResize' | 'CancelResize';

/** Deadline of calls that the shim answers from memory, in milliseconds. */
const ANSWER_MS = 30_000;

/** The stream of WatchResizes. */
export interface Watch extends AsyncIterable<Messages['ResizeEvent']> {
  /** Resolves once the shim has accepted the watch: no later event is missed. Rejects with a ServiceError. */
  readonly opened: Promise<void>;
  cancel(): void;
}

/** A client of the resize API. Calls reject with a ServiceError. */
export class ResizeClient {
  readonly #client: Client;

  /**
   * @param endpoint absolute path of the socket
   * @param say called with what the client waits for, after 5 s
   */
  constructor(
    readonly endpoint: string,
    private readonly say: (line: string) => void = () => undefined,
  ) {
    this.#client = new Client(`unix:${endpoint}`, credentials.createInsecure(), {
      'grpc.max_receive_message_length': 16 * MiB,
      'grpc.enable_retries': 0,
      'grpc.default_authority': 'localhost',
    });
  }

  async call<Name extends Method>(
    method: Name,
    request: object,
    timeoutMs = ANSWER_MS,
  ): Promise<Messages[`${Name}Response`]> {
    const bytes = await this.raw(
      pathOf(method),
      encode(`${method}Request` satisfies keyof Requests, request),
      timeoutMs,
    );
    return decodeResponse<`${Name}Response`>(`${method}Response`, bytes);
  }

  /** Calls a method with encoded bytes, and returns the encoded response. */
  raw(path: string, request: Buffer, timeoutMs = ANSWER_MS): Promise<Buffer> {
    const name = path.slice(path.lastIndexOf('/') + 1);
    const answer = new Promise<Buffer>((resolve, reject) => {
      const deadline = wallTime() + timeoutMs;
      this.#client.makeUnaryRequest(
        path,
        identity,
        identity,
        request,
        new JsMetadata(),
        { deadline },
        (error, response) => (error === null ? resolve(response ?? Buffer.alloc(0)) : reject(ownError(error))),
      );
    });
    return sayingWaits(`the answer to ${name}`, answer, this.say);
  }

  /** @param history whether the last states of stored resizes come first */
  watch(pod?: Requests['WatchResizesRequest']['pod'], history = false): Watch {
    const request = encode('WatchResizesRequest', { ...(pod && { pod }), history });
    const stream: ClientReadableStream<Buffer> = this.#client.makeServerStreamRequest(
      pathOf('WatchResizes'),
      identity,
      identity,
      request,
    );
    stream.prependListener('error', ownError);
    const started = once(stream, 'metadata').then(() => undefined);
    const opened = sayingWaits('the start of WatchResizes', started, this.say);
    // A failure also reaches the reader of the stream.
    opened.catch(() => undefined);
    return { opened, cancel: () => stream.cancel(), [Symbol.asyncIterator]: () => eventsOf(stream) };
  }

  close(): void {
    this.#client.close();
  }
}

async function* eventsOf(
  stream: ClientReadableStream<Buffer>,
): AsyncGenerator<Messages['ResizeEvent'], void, undefined> {
  for await (const bytes of stream as AsyncIterable<Buffer>) yield decodeResponse('ResizeEvent', bytes);
}

/** Converts an error of grpc-js to a ServiceError, in place. */
function ownError(error: Error | ServiceError): Error {
  // An error that the stream itself makes when its reader stops has no status.
  if (!('metadata' in error)) return error;
  return Object.assign(error, { metadata: Metadata.ofHeaders(error.metadata.toHttp2Headers()) });
}

const identity = (bytes: Buffer): Buffer => bytes;
const pathOf = (method: string): string => `/${PACKAGE}.ResizeService/${method}`;

/** Returns the path in an address such as `unix:///run/x.sock`. Throws UsageError with the flag if invalid. */
export function socketPath(flag: string, address: string): string {
  const path = address.replace(/^unix:(?:\/\/)?/, '');
  if (path.startsWith('/')) return path;
  throw new UsageError(`${flag}: invalid address ${JSON.stringify(address)}: expected unix:// and an absolute path`);
}
