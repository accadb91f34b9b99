import { writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import http2, { type ClientHttp2Session } from 'node:http2';
import type { Notes, Span } from './notes.ts';

/**
 * Loaded into a measured shim before its own code (`--import`). Records when the shim was in an fsync, and when it
 * waited for an answer of the backend. Writes this to the file in CRI_BENCH_NOTES at the end of the process.
 */
const file = process.env['CRI_BENCH_NOTES'] ?? '';
const fsyncs: Span[] = [];
const backend: Span[] = [];
const now = (): number => Number(process.hrtime.bigint()) / 1000;

const any = await open('/dev/null');
const handles = Object.getPrototypeOf(any) as { sync: () => Promise<void> };
await any.close();
const { sync } = handles;
handles.sync = async function (this: unknown): Promise<void> {
  const begin = now();
  try {
    await sync.call(this);
  } finally {
    fsyncs.push([begin, now()]);
  }
};

const { connect } = http2;
http2.connect = ((...given: Parameters<typeof connect>): ClientHttp2Session => {
  const session = connect(...given);
  const request = session.request.bind(session);
  session.request = (...asked): ReturnType<typeof request> => {
    const begin = now();
    const stream = request(...asked);
    // The trailers are the end of an answer.
    stream.once('trailers', () => backend.push([begin, now()]));
    return stream;
  };
  return session;
}) as typeof connect;

process.on('exit', () => writeFileSync(file, JSON.stringify({ fsyncs, backend } satisfies Notes)));
