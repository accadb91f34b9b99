import { Client, credentials } from '@grpc/grpc-js';
import { MiB } from '../../src/core/quantities/sizes.ts';
import type { BenchClient, Call, Done } from './client.ts';

const MAX_MESSAGE = 16 * MiB;
const same = (bytes: Buffer): Buffer => bytes;

/** An ordinary gRPC client, with messages as bytes. */
export class GrpcClient implements BenchClient {
  readonly #client: Client;

  constructor(path: string) {
    // A separate subchannel for each client, because two clients of one socket would share one.
    const options = { 'grpc.use_local_subchannel_pool': 1, 'grpc.max_receive_message_length': MAX_MESSAGE };
    this.#client = new Client(`unix:${path}`, credentials.createInsecure(), options);
  }

  start(call: Call, done: Done): void {
    this.#make(call, (error) => done(error ?? undefined));
  }

  call(call: Call): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      this.#make(call, (error, response) => {
        if (error) reject(error);
        else resolve(response ?? Buffer.alloc(0));
      });
    });
  }

  close(): void {
    this.#client.close();
  }

  #make(call: Call, done: (error: Error | null, response?: Buffer) => void): void {
    this.#client.makeUnaryRequest(call.path, same, same, Buffer.from(call.request), done);
  }
}
