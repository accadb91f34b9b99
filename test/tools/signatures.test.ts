import { once } from 'node:events';
import { type Server, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { type SignatureResult, checkSignatures } from '../../tools/signatures/signatures.ts';

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

/** A registry that answers every request so. `undefined`: never. */
async function registry(status: number, body: string | undefined): Promise<string> {
  server = createServer((request, response) => {
    response.statusCode = request.url === '/npm/-/npm/v1/keys' ? status : 418;
    if (body !== undefined) response.end(body);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/npm`;
}
const KEYS = JSON.stringify({ keys: [{ keyid: 'SHA256:a', key: 'b' }] });

describe('a registry without keys', () => {
  test.each<[string, number, string | undefined, RegExp]>([
    ['it has none', 404, '', /keys serves no keys: HTTP 404$/],
    ['its list is empty', 200, '{"keys":[]}', /keys serves no keys$/],
    ['it answers with a page', 200, '<html>', /keys does not answer: /],
    ['it never answers', 200, undefined, /keys does not answer: .*timeout/],
  ])(
    'signatures are not checked, and npm is not asked, if the registry has no usable keys: %s',
    async (_, status, body, why) => {
      const npm = (): never => {
        throw new Error('npm was asked');
      };
      const timeoutMs = body === undefined ? 300 : 60_000;
      const result = await checkSignatures({ registry: await registry(status, body), npm, timeoutMs });
      expect(result).toEqual({ kind: 'not checked', why: expect.stringMatching(why) as string });
    },
  );
});

test.each<[string, string, boolean, SignatureResult]>([
  ['right', '{"invalid":[],"missing":[]}', false, { kind: 'verified' }],
  [
    'wrong or missing',
    '{"invalid":[{"name":"koffi","version":"3.3.4"}],"missing":[{"name":"pino","version":"10.4.0"}]}',
    false,
    { kind: 'failed', packages: ['koffi@3.3.4: wrong signature', 'pino@10.4.0: no signature'] },
  ],
  [
    'an error of npm',
    '{"error":{"summary":"no TUF metadata"}}',
    false,
    { kind: 'not checked', why: 'npm audit signatures: no TUF metadata' },
  ],
  ['nothing', '', false, { kind: 'not checked', why: 'npm audit signatures printed no result' }],
  ['something else', '{}', false, { kind: 'not checked', why: 'npm audit signatures printed no result' }],
  ['too late', '', true, { kind: 'not checked', why: 'npm audit signatures has not ended in time' }],
])(
  'with keys of the registry, the result of npm audit signatures counts: %s',
  async (_, stdout, timedOut, expected) => {
    const asked: (readonly string[])[] = [];
    const npm = (args: readonly string[]) => {
      asked.push(args);
      return Promise.resolve({ stdout, timedOut });
    };
    const address = await registry(200, KEYS);
    expect(await checkSignatures({ registry: address, npm, timeoutMs: 60_000 })).toEqual(expected);
    expect(asked).toEqual([['audit', 'signatures', '--json', '--registry', address]]);
  },
);
