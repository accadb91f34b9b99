import { EventEmitter } from 'node:events';
import {
  Client,
  Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceError,
  credentials,
  type sendUnaryData,
} from '@grpc/grpc-js';

const identity = (bytes: Buffer): Buffer => bytes;

/** Replaces containerd: `/s/Echo` answers with its request, `/s/Hang` and `/s/Stream` when the test says so. */
export class FakeBackend {
  readonly #server = new Server();
  readonly events = new EventEmitter();
  readonly #hanging: (() => void)[] = [];

  private constructor(others: readonly string[]) {
    this.#server.register('/s/Echo', echo, identity, identity, 'unary');
    this.#server.register('/s/Hang', this.#hang, identity, identity, 'unary');
    // Calls of the shim itself are answered for an empty node.
    const methods = ['ListPodSandbox', 'ListContainers', 'Status', 'RuntimeConfig', 'ContainerStatus'];
    for (const method of [...methods, ...others]) {
      this.#server.register(`/runtime.v1.RuntimeService/${method}`, empty, identity, identity, 'unary');
    }
    this.#server.register('/s/Stream', this.#stream, identity, identity, 'serverStream');
  }

  /** @param others methods of the runtime service to answer, too */
  static async listen(path: string, others: readonly string[] = []): Promise<FakeBackend> {
    const backend = new FakeBackend(others);
    await new Promise<void>((resolve, reject) => {
      backend.#server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) =>
        error === null ? resolve() : reject(error),
      );
    });
    return backend;
  }

  /** Ends all hanging calls. */
  release(): void {
    for (const end of this.#hanging.splice(0)) end();
  }

  close(): void {
    this.#server.forceShutdown();
  }

  #hang = (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void => {
    this.#hanging.push(() => respond(null, call.request));
    this.events.emit('hanging');
  };

  #stream = (call: ServerWritableStream<Buffer, Buffer>): void => {
    call.write(Buffer.from('first'));
    this.#hanging.push(() => {
      call.write(Buffer.from('last'));
      call.end();
    });
  };
}

function echo(call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void {
  respond(null, call.request);
}

function empty(_: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void {
  respond(null, Buffer.alloc(0));
}

/** A client on a unix socket that sends raw bytes. */
export class RawClient {
  readonly #client: Client;

  constructor(path: string) {
    this.#client = new Client(`unix:${path}`, credentials.createInsecure(), {
      'grpc.use_local_subchannel_pool': 1,
      'grpc.initial_reconnect_backoff_ms': 50,
      'grpc.max_reconnect_backoff_ms': 50,
    });
  }

  /** Rejects with grpc-js's ServiceError. */
  call(path: string, request: string, metadata = new Metadata()): Promise<string> {
    return new Promise((resolve, reject) => {
      const deadline = Date.now() + 120_000;
      this.#client.makeUnaryRequest(
        path,
        identity,
        identity,
        Buffer.from(request, 'latin1'),
        metadata,
        { deadline },
        (error, response) => (error === null ? resolve(String(response)) : reject(error)),
      );
    });
  }

  /** Returns the code with which a call fails, or 0. */
  code(path: string, request = ''): Promise<number> {
    return this.call(path, request).then(
      () => 0,
      (error: unknown) => (error as ServiceError).code,
    );
  }

  stream(path: string): EventEmitter {
    return this.#client.makeServerStreamRequest(path, identity, identity, Buffer.alloc(0), new Metadata());
  }

  close(): void {
    this.#client.close();
  }
}
