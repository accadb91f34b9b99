import { request } from 'node:https';

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

  /** A JSON merge patch that finds containers by name, as `kubectl patch` does. */
  patch(path: string, body: object): Promise<unknown> {
    return this.#call('PATCH', path, body, 'application/strategic-merge-patch+json');
  }

  delete(path: string): Promise<unknown> {
    return this.#call('DELETE', path);
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
          if ((response.statusCode ?? 500) >= 300)
            reject(new Error(`${method} ${path}: ${response.statusCode} ${text}`));
          else resolve((text.startsWith('{') ? JSON.parse(text) : text) as Answer);
        });
      });
      call.on('error', reject);
      call.end(body && JSON.stringify(body));
    });
  }
}
