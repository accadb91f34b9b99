/** An HTTP response. */
export interface Answer {
  readonly status: number;
  /** The content type. */
  readonly type: string;
  readonly body: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

export const plain = (status: number, body: string, headers: Answer['headers'] = {}): Answer => ({
  status,
  type: 'text/plain; charset=utf-8',
  body: `${body}\n`,
  headers,
});
