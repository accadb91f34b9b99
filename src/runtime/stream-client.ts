import { Client, Metadata as JsMetadata, type ServiceError, credentials } from '@grpc/grpc-js';
import { wallDeadline } from '../core/concurrency/index.ts';
import { Code, Metadata } from '../core/grpc/index.ts';
import { correctStatus } from './backend-error.ts';
import { type BackendCall, failure } from './channel/index.ts';

/**
 * Makes calls with a stream of responses, with grpc-js. Those are rare, and grpc-js takes 10 MB: this file is loaded for the first of
 * them ({@link Backend.stream}).
 */
export class StreamClient {
  readonly #client: Client;

  /**
   * @param address `unix:///run/containerd/containerd.sock`
   * @param longestMessage in bytes, of requests and responses
   */
  constructor(address: string, longestMessage: number) {
    this.#client = new Client(address, credentials.createInsecure(), {
      'grpc.max_receive_message_length': longestMessage,
      'grpc.max_send_message_length': longestMessage,
      // With the defaults, 1 s to 120 s, calls could fail for two minutes after a restart of containerd.
      'grpc.initial_reconnect_backoff_ms': 100,
      'grpc.max_reconnect_backoff_ms': 200,
      'grpc.enable_retries': 0,
      'grpc.enable_channelz': 0,
      'grpc.use_local_subchannel_pool': 1,
      'grpc.default_authority': 'localhost',
    });
  }

  /** Makes a call. Its messages end with a ServiceError if it fails. The call ends when its reader stops. */
  async *call({ path, message, metadata, deadline, signal }: BackendCall): AsyncGenerator<Buffer, void, undefined> {
    const options = { deadline: wallDeadline(deadline) };
    const call = this.#client.makeServerStreamRequest(path, identity, identity, message, ofJs(metadata), options);
    call.prependListener('error', (error: Error | ServiceError) => {
      // One that the stream makes itself when its reader stops has no status.
      if (!('metadata' in error)) return;
      correctStatus(error);
      Object.assign(error, { metadata: Metadata.ofHeaders(error.metadata.toHttp2Headers()) });
    });
    const cancel = (): void => call.cancel();
    if (signal?.aborted === true) cancel();
    else signal?.addEventListener('abort', cancel, { once: true });
    try {
      yield* call as AsyncIterable<Buffer>;
    } finally {
      signal?.removeEventListener('abort', cancel);
      cancel();
    }
  }

  /** Makes no more calls. Those that run continue. */
  close(): void {
    this.#client.close();
  }
}

const identity = (bytes: Buffer): Buffer => bytes;

/**
 * Bytes of metadata in a call. grpc-js sends each value with its name, so that a field of bytes with thousands of values would become
 * millions of bytes.
 */
const MOST_METADATA = 64 * 1024;

/** Returns metadata in the form of grpc-js. Throws RESOURCE_EXHAUSTED if there is too much. */
function ofJs(metadata: Metadata | undefined): JsMetadata {
  const pairs = metadata?.pairs() ?? [];
  const size = pairs.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (size > MOST_METADATA)
    throw failure({ code: Code.RESOURCE_EXHAUSTED, details: `metadata of more than ${MOST_METADATA} bytes` });
  const js = new JsMetadata();
  for (const [name, value] of pairs) js.add(name, value);
  return js;
}
