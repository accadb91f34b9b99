import type { BenchClient, Call, Done } from './client.ts';
import { Connection } from './connection.ts';

/** A client that opens a new connection for each call, and closes it. */
export class ConnectingClient implements BenchClient {
  constructor(private readonly path: string) {}

  start(call: Call, done: Done): void {
    this.call(call).then(
      () => done(undefined),
      (error: unknown) => done(error instanceof Error ? error : new Error(String(error))),
    );
  }

  async call(call: Call): Promise<Buffer> {
    const connection = await Connection.open(this.path);
    try {
      return await connection.call(call);
    } finally {
      connection.close();
    }
  }

  close(): void {
    // No connection is open between calls.
  }
}
