import type { Field } from '../../support/http2/reference-hpack.ts';
import { hostileText } from '../mutations/values.ts';
import type { Random } from '../random.ts';

/** Header fields at which servers have failed, including fields that grpc-js and Node's HTTP/2 do not check. */

const CONTENT_TYPES = [
  'application/grpc',
  'application/grpc+proto',
  'application/grpc+json',
  'application/grpc-web',
  'application/grpc; charset=utf-8',
  'APPLICATION/GRPC',
  'application/json',
  'text/html',
  'application/grpcx',
  '',
  ' ',
];
const ENCODINGS = ['gzip', 'deflate', 'identity', 'br', 'snappy', '', 'gzip,deflate', '__proto__'];
const TIMEOUTS = ['1n', '0S', '1m', '99999999H', '999999999H', '-1S', 'abc', '', '1', '1.5S', '10S', '1u'];
const METHODS = ['GET', 'PUT', 'HEAD', 'OPTIONS', 'CONNECT', 'PRI', 'post', ''];
const OTHERS: readonly Field[] = [
  { name: 'expect', value: '100-continue' },
  { name: 'connection', value: 'close' },
  { name: 'transfer-encoding', value: 'chunked' },
  { name: 'upgrade', value: 'h2c' },
  { name: 'te', value: 'gzip' },
  { name: 'host', value: 'example.org' },
  { name: 'content-length', value: '1' },
  { name: 'content-length', value: '99999999999999999999' },
  { name: ':status', value: '200' },
  { name: ':path', value: '/s/Echo' },
  { name: ':protocol', value: 'websocket' },
  { name: ':authority', value: '' },
  { name: 'Upper', value: 'case' },
  { name: '', value: 'no name' },
  { name: 'x-a\nb', value: 'newline' },
  { name: 'x-value', value: 'new\r\nline' },
  { name: 'x-bin', value: 'AAECAw==' },
  { name: 'x-bin', value: '%%%' },
  { name: 'x-bin', value: 'AAEC,AAEC' },
  { name: 'grpc-status', value: '0' },
  { name: 'grpc-accept-encoding', value: 'gzip,,deflate' },
  { name: 'grpc-previous-rpc-attempts', value: '-5' },
  { name: 'grpc-tags-bin', value: 'AA' },
  { name: 'grpc-trace-bin', value: '\xff' },
  { name: 'cookie', value: 'a=b' },
  { name: 'x-cri-resize-shim-encoding', value: 'gzip' },
  { name: '__proto__', value: 'polluted' },
  { name: 'constructor', value: 'x' },
  { name: 'user-agent', value: 'u'.repeat(3000) },
];

const set = (fields: Field[], name: string, value: string): Field[] => [
  ...fields.filter((field) => field.name !== name),
  { name, value },
];

/** Returns the fields with one to three changes. */
export function mutateFields(fields: readonly Field[], random: Random): Field[] {
  let changed = [...fields];
  for (let count = 1 + random.below(3); count > 0; count -= 1) changed = changeOnce(changed, random);
  return changed;
}

function changeOnce(fields: Field[], random: Random): Field[] {
  switch (random.below(9)) {
    case 0:
    case 1:
      return set(fields, 'content-type', random.pick(CONTENT_TYPES));
    case 2:
      return set(fields, 'grpc-encoding', random.pick(ENCODINGS));
    case 3:
      return set(fields, 'grpc-timeout', random.pick(TIMEOUTS));
    case 4:
      return fields.map((field) =>
        field.name === ':method' ? { name: ':method', value: random.pick(METHODS) } : field,
      );
    case 5:
      return fields.filter((_, at) => at !== random.below(fields.length));
    case 6:
      return [...fields, { name: random.chance(3) ? 'x-bin' : 'x', value: latin1(hostileText(random)) }];
    case 7:
      return fields.map((field) =>
        field.name === ':path' && random.chance(2)
          ? {
              name: ':path',
              value: random.pick([
                '',
                '*',
                '/',
                '//',
                `${field.value}/`,
                field.value.slice(1),
                `${field.value}?a=b`,
                '/%00',
              ]),
            }
          : field,
      );
    default:
      return [...fields, random.pick(OTHERS)];
  }
}

const latin1 = (text: string): string => Buffer.from(text).toString('latin1');
