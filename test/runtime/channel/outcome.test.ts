import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:http2';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HeaderField } from '../../../src/http2/hpack/field.ts';
import { staticField } from '../../../src/http2/hpack/static-table.ts';
import { metadataOf, percentDecoded } from '../../../src/runtime/channel/outcome.ts';

describe('metadata of an outcome', () => {
  const folder = mkdtempSync(join(tmpdir(), 'metadata-'));
  const path = join(folder, 's.sock');
  const server = createServer();

  beforeAll(() => once(server.listen(path), 'listening'));

  afterAll(async () => {
    await new Promise((resolve) => server.close(resolve));
    rmSync(folder, { recursive: true });
  });

  const field = (name: string, value: string): HeaderField => new HeaderField(name, value, 0, 0, false);

  /** Returns the metadata of fields in the form of node:http2. */
  function headersOf(fields: readonly HeaderField[]): Record<string, string[]> {
    const names = Map.groupBy(metadataOf(fields).fields(), ([name]) => name);
    return Object.fromEntries([...names].map(([name, all]) => [name, all.map(([, text]) => text)]));
  }

  /** Sends fields as the trailers of a response by node:http2. Returns them as they arrive. */
  async function forwarded(fields: readonly HeaderField[]): Promise<object> {
    const sent = headersOf(fields);
    const failed = new Promise<never>((_, reject) => {
      server.once('stream', (stream) => {
        stream.respond({ ':status': 200 }, { waitForTrailers: true });
        stream.once('wantTrailers', () => {
          try {
            stream.sendTrailers(sent);
          } catch (error) {
            stream.close();
            reject(new Error('node:http2 does not send these trailers', { cause: error }));
          }
        });
        stream.end();
      });
    });
    const client = connect('http://localhost', { createConnection: () => createConnection(path) });
    try {
      const request = client.request({ ':path': '/' }).resume();
      const [trailers] = (await Promise.race([once(request, 'trailers'), failed])) as [object];
      return trailers;
    } finally {
      client.destroy();
    }
  }

  const OTHERS = [
    'connection',
    'keep-alive',
    'proxy-connection',
    'upgrade',
    'http2-settings',
    'te',
    'dnt',
    'tk',
    'origin',
  ];
  const MORE = [
    'content-md5',
    'x-content-type-options',
    'upgrade-insecure-requests',
    'access-control-max-age',
    'x-own',
  ];
  const STATIC = Array.from({ length: 61 }, (_, index) => staticField(index + 1)?.name ?? '');
  const NAMES = [...new Set([...STATIC, ...OTHERS, ...MORE])].filter((name) => name !== '' && !name.startsWith(':'));

  test.each(NAMES)('trailers of a failed call with two %s fields can be forwarded', async (name) => {
    const own = { 'x-last': 'c' };
    expect(await forwarded([field(name, 'a'), field(name, 'b'), field('x-last', 'c')])).toMatchObject(own);
  });

  test('a single-value field keeps its first value, and other fields keep all values', () => {
    const fields = [field('etag', 'a'), field('etag', 'b'), field('x-own', 'a'), field('x-own', 'b'), field('te', 'x')];
    expect(metadataOf(fields).fields()).toEqual([
      ['etag', 'a'],
      ['x-own', 'a'],
      ['x-own', 'b'],
    ]);
  });
});

test.each([
  ['', ''],
  ['no pod "a/b:c"', 'no pod "a/b:c"'],
  ['100%25', '100%'],
  ['a%2Fb%3a', 'a/b:'],
  ['gr%C3%BC%C3%9Fe', 'grüße'],
  ['%', '%'],
  ['50%zz %4', '50%zz %4'],
  ['%C3%', '\ufffd%'],
  // Raw UTF-8, which the wire code reads as one character for each octet.
  ['gr\u00c3\u00bc', 'grü'],
])('percentDecoded decodes %j to %j', (text, decoded) => {
  expect(percentDecoded(text)).toBe(decoded);
});

test('percentDecoded restores any text that is encoded like in grpc-go', () => {
  const encoded = (text: string): string =>
    [...Buffer.from(text)]
      .map((octet) =>
        octet >= 0x20 && octet <= 0x7e && octet !== 0x25
          ? String.fromCharCode(octet)
          : `%${octet.toString(16).toUpperCase().padStart(2, '0')}`,
      )
      .join('');
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      expect(percentDecoded(encoded(text))).toBe(Buffer.from(text).toString());
    }),
  );
});
