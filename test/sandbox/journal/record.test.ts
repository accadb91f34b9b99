import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { messageOf } from '../../../src/core/errors.ts';
import { decodeRecord, encodeRecord, MAX_RECORD_BYTES } from '../../../src/sandbox/journal/record.ts';
import { numbered, podUid, volumeOf } from '../../support/journal/numbered.ts';
import { anyRecord } from '../../support/journal/records.ts';
import { cases } from '../../support/property-cases.ts';

const change = (edit: (form: Record<string, unknown>) => unknown): Buffer => {
  const form = JSON.parse(encodeRecord(numbered(7), 'boot').toString()) as Record<string, unknown>;
  return Buffer.from(JSON.stringify(edit(form) ?? form));
};

const absolute = (size: number): object => ({ kind: 'absolute', size });

/** Returns the error of decoding a content, or undefined. Faster than an expectation, for thousands of contents. */
function faultOf(content: Buffer): string | undefined {
  try {
    decodeRecord(content);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** Returns all lengths to which content can be truncated, except the length without the closing line break. */
const cutsOf = (content: Buffer): number[] => Array.from({ length: content.length - 1 }, (_, length) => length);

describe('a journal record', () => {
  test('a journal record is decoded as it was written, with any number, max and text', () => {
    fc.assert(
      fc.property(anyRecord, fc.string(), (record, bootId) => {
        expect(decodeRecord(encodeRecord(record, bootId))).toStrictEqual({ version: 4, bootId, ...record });
      }),
      cases(2000),
    );
  });

  test('a truncated journal record is invalid, unless only its closing line break is missing', () => {
    fc.assert(
      fc.property(anyRecord, (record) => {
        const content = encodeRecord(record, 'boot');
        const faults = cutsOf(content).map((length) => faultOf(content.subarray(0, length)));
        expect([...new Set(faults)]).toEqual(['is not valid JSON, or is truncated']);
        expect(decodeRecord(content.subarray(0, -1))).toEqual(decodeRecord(content));
      }),
      cases(30),
    );
  });

  test('a journal record that ends in zeros is invalid, as a file system may leave it', () => {
    const content = encodeRecord(numbered(1), 'boot');
    const faults = cutsOf(content).map((length) => faultOf(Buffer.from(content).fill(0, length)));
    expect([...new Set(faults)]).toEqual(['is not valid JSON, or is truncated']);
  });

  test('arbitrary bytes are rejected as a journal record with a known error', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.uint8Array(),
          fc.json().map((text) => Buffer.from(text)),
        ),
        (content) => {
          expect(() => decodeRecord(Buffer.from(content))).toThrow(
            /^is not (?:valid JSON|a journal record)|^has version/,
          );
        },
      ),
      cases(2000),
    );
  });

  test.each([
    [
      'of a later version',
      (form: object) => ({ ...form, version: 5 }),
      'has version 5: this shim reads versions 3 to 4',
    ],
    [
      'of an earlier version',
      (form: object) => ({ ...form, version: 2 }),
      'has version 2: this shim reads versions 3 to 4',
    ],
    ['without a version', (form: object) => ({ ...form, version: undefined }), /^is not a journal record: version: /],
    ['with a field of another shim', (form: object) => ({ ...form, extra: 1 }), /^is not a journal record: .*extra/],
    [
      'with a size below zero',
      (form: object) => ({ ...form, volumes: { cache: { ...volumeOf(1), mount: { device: '0:1', size: -1 } } } }),
      /^is not a journal record: volumes.cache.mount.size: /,
    ],
    [
      'with a size that lost digits',
      (form: object) => ({ ...form, volumes: { cache: { ...volumeOf(1), policy: absolute(2 ** 53) } } }),
      /volumes.cache.policy.size/,
    ],
    [
      'with half a byte',
      (form: object) => ({ ...form, volumes: { cache: { ...volumeOf(1), policy: absolute(0.5) } } }),
      /volumes.cache.policy.size/,
    ],
    ['with a volume that is a number', (form: object) => ({ ...form, volumes: { cache: 1 } }), /volumes.cache/],
    ['without volumes', (form: object) => ({ ...form, volumes: undefined }), /^is not a journal record: volumes/],
    [
      'with an invalid device',
      (form: object) => ({ ...form, volumes: { cache: { ...volumeOf(1), mount: { device: '/dev/x', size: 1 } } } }),
      /volumes.cache.mount.device/,
    ],
    [
      'with a volume name that starts with ..',
      (form: object) => ({ ...form, volumes: { '../x': 1 } }),
      /^is not a journal record: volumes/,
    ],
    [
      'with a volume name that contains ..',
      (form: object) => ({ ...form, volumes: { 'x/../y': 1 } }),
      /^is not a journal record: volumes/,
    ],
    [
      'with a step of an unknown kind',
      (form: object) => ({ ...form, transaction: { id: '', startedAt: 0, undoing: false, steps: [{ kind: 'x' }] } }),
      /^is not a journal record: transaction.steps.0/,
    ],
    ['that is a list', () => [], /^is not a journal record/],
    ['that is a list of no bytes', () => Buffer.alloc(0).toJSON().data, /^is not a journal record/],
  ])('a journal record %s is rejected with the cause', (_, edit, message) => {
    expect(() => decodeRecord(change(edit))).toThrow(message);
  });

  test('a journal record that is not UTF-8 is rejected, since a replacement character would change the text', () => {
    const content = encodeRecord({ ...numbered(1), sandboxId: 'é' }, 'boot');
    content[content.indexOf(0xc3)] = 0xff;
    expect(() => decodeRecord(content)).toThrow('is not valid JSON');
  });

  test('a journal record with several faults is rejected with the first one', () => {
    const broken = change((form) => ({ ...form, bootId: 1, podUid: 2 }));
    expect(() => decodeRecord(broken)).toThrow(/^is not a journal record: bootId: (?!.*podUid)/);
  });

  test('a journal record one byte above the maximum size is not written', () => {
    const withText = (length: number) => ({ ...numbered(1), resizes: ['x'.repeat(length)] });
    const most = MAX_RECORD_BYTES - encodeRecord(withText(0), 'boot').length;
    expect(encodeRecord(withText(most), 'boot')).toHaveLength(MAX_RECORD_BYTES);
    expect(() => encodeRecord(withText(most + 1), 'boot')).toThrow(
      expect.objectContaining({
        code: 3,
        reason: 'INVALID_VALUE',
        message: `the journal's record of pod ${podUid} would have 1048577 bytes: the maximum is 1048576`,
        context: { pod: podUid, asked: '1048577', found: '1048576' },
      }),
    );
  });

  test.each([
    ['__proto__', 'a volume has an invalid name'],
    ['../x', 'is not a journal record: volumes'],
    ['', 'is not a journal record: volumes'],
  ])('a journal record that cannot be read back (a volume named %j) is not written', (name, why) => {
    const record = { ...numbered(1), volumes: new Map([[name, volumeOf(1)]]) };
    expect(() => encodeRecord(record, 'boot')).toThrow(
      expect.objectContaining({
        code: 13,
        reason: 'INTERNAL',
        context: { pod: podUid },
        message: expect.stringContaining(`record of pod ${podUid} cannot be read back: ${why}`) as unknown,
        cause: expect.any(Error) as unknown,
      }),
    );
  });
});
