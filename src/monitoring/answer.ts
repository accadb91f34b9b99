/** An HTTP response. */
export interface Answer {
  readonly status: number;
  /** The content type. */
  readonly type: string;
  readonly body: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Returns an answer in plain text, with a line end. */
export const plain = (status: number, body: string, headers: Answer['headers'] = {}): Answer => ({
  status,
  type: 'text/plain; charset=utf-8',
  body: `${body}\n`,
  headers,
});
