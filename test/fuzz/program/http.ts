import { hostileText, mutateBytes } from '../mutations/values.ts';
import type { Random } from '../random.ts';

const PATHS = [
  '/',
  '/metrics',
  '/healthz',
  '/livez',
  '/readyz',
  '/readyz?verbose',
  '/livez?exclude=ping',
  '/__proto__',
  '*',
  '',
];
const METHODS = ['GET', 'GET', 'GET', 'HEAD', 'POST', 'OPTIONS', 'CONNECT', 'TRACE', 'PRI', 'get', 'x y'];
const HOSTS = [
  'localhost',
  '127.0.0.1:9467',
  '[::1]',
  'example.org',
  '',
  '[',
  ':',
  'localhost:99999',
  '127.1',
  'a'.repeat(300),
];
const FIELDS = [
  'Content-Length: 5',
  'Content-Length: -1',
  'Content-Length: 5\r\nContent-Length: 6',
  'Transfer-Encoding: chunked',
  'Transfer-Encoding: chunked, gzip',
  'Expect: 100-continue',
  'Expect: x',
  'Upgrade: h2c',
  'Connection: Upgrade\r\nUpgrade: websocket',
  'Connection: close',
  'Host: twice',
  'No colon',
  ': no name',
  'X: \0',
  'Range: bytes=0-1',
  'Accept-Encoding: gzip',
];

/** Returns a request of HTTP/1.1, mutated. */
export function httpRequest(random: Random): Buffer {
  const path = random.chance(5) ? hostileText(random) : random.pick(PATHS);
  const lines = [`${random.pick(METHODS)} ${path} HTTP/${random.pick(['1.1', '1.1', '1.1', '1.0', '2.0', '9'])}`];
  if (!random.chance(8)) lines.push(`Host: ${random.chance(3) ? random.pick(HOSTS) : 'localhost'}`);
  for (let count = random.below(3); count > 0; count -= 1) lines.push(random.pick(FIELDS));
  const body = random.chance(3)
    ? random.pick(['hello', '5\r\nhello\r\n0\r\n\r\n', 'ffffffffffffffff\r\n', '-1\r\n'])
    : '';
  const bytes = Buffer.from(`${lines.join('\r\n')}\r\n\r\n${body}`, 'latin1');
  return random.chance(3) ? mutateBytes(bytes, random) : bytes;
}
