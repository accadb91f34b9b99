import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { createInterface } from 'node:readline';

/** An error response of the API server. */
export class ApiError extends Error {
  constructor(
    call: string,
    readonly status: number,
    readonly body: string,
  ) {
    super(`${call}: ${status} ${body}`);
  }

  /** The message of the response. */
  get reason(): string {
    return this.body.startsWith('{') ? (JSON.parse(this.body) as { message: string }).message : this.body;
  }
}

/** One change of an object. A watch starts with an ADDED event for each existing object. */
export interface WatchEvent<Watched> {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  readonly object: Watched;
}

/** A client of the test's API server, with JSON requests and responses. */
export class Api {
  constructor(
    readonly server: string,
    readonly token: string,
  ) {}

  get<Answer>(path: string): Promise<Answer> {
    return this.#call('GET', path);
  }

  create<Answer>(path: string, body: object): Promise<Answer> {
    return this.#call('POST', path, body);
  }

  /** Sends a strategic merge patch, which matches containers by name, like `kubectl patch`. */
  patch<Answer = unknown>(path: string, body: object): Promise<Answer> {
    return this.#call('PATCH', path, body, 'application/strategic-merge-patch+json');
  }

  /** A JSON merge patch that replaces lists as a whole, which custom resources need. */
  merge<Answer = unknown>(path: string, body: object): Promise<Answer> {
    return this.#call('PATCH', path, body, 'application/merge-patch+json');
  }

  delete(path: string): Promise<unknown> {
    return this.#call('DELETE', path);
  }

  /** Yields each change of the objects of a list until the signal aborts. */
  async *watch<Watched>(path: string, signal: AbortSignal): AsyncGenerator<WatchEvent<Watched>, void> {
    const call = request(`${this.server}${path}?watch=true`, {
      headers: { authorization: `Bearer ${this.token}` },
      rejectUnauthorized: false,
      signal,
    });
    call.end();
    const [response] = (await once(call, 'response')) as [IncomingMessage];
    for await (const line of createInterface({ input: response })) yield JSON.parse(line) as WatchEvent<Watched>;
  }

  #call<Answer>(method: string, path: string, body?: object, type = 'application/json'): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const headers = { authorization: `Bearer ${this.token}`, ...(body && { 'content-type': type }) };
      // The server has just created its certificate itself.
      const call = request(`${this.server}${path}`, { method, headers, rejectUnauthorized: false }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString();
          const status = response.statusCode ?? 500;
          if (status >= 300) reject(new ApiError(`${method} ${path}`, status, text));
          else resolve((text.startsWith('{') ? JSON.parse(text) : text) as Answer);
        });
      });
      call.on('error', reject);
      call.end(body && JSON.stringify(body));
    });
  }
}
