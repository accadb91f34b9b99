import { readFileSync, writeFileSync } from 'node:fs';
import { brotliCompressSync, brotliDecompressSync, constants } from 'node:zlib';
import * as z from 'zod';
import { messageOf } from '../../src/core/errors.ts';

/**
 * A recording of the CRI calls that a kubelet has made, with the bytes of requests and responses. The file is
 * compressed with brotli: four bytes with the length of a JSON text, the JSON text, and the contents that it refers to
 * by number. Each content is stored once.
 */

/** Where a recording comes from, and what its calls cost containerd. */
const aboutSchema = z.strictObject({
  /** `2026-11-26` */
  date: z.string(),
  kubelet: z.string(),
  containerd: z.string(),
  runtime: z.string(),
  /** `User Mode Linux 6.1, 1 processor` */
  kernel: z.string(),
  pods: z.int().positive(),
  /** Containers of each pod. */
  containers: z.int().positive(),
  /** Number of containers that have an exec probe, and the interval of the probes in seconds. */
  probes: z.int().nonnegative(),
  probeSeconds: z.number().nonnegative(),
  /** Seconds between two reads of kubelet's /metrics/resource, as metrics-server does. */
  statsSeconds: z.number().nonnegative(),
  /** Duration of the recording in seconds. */
  seconds: z.number().positive(),
  /** CPU time of containerd's process during the recording, without its shims and runc. */
  containerdCpuMs: z.number().nonnegative(),
  /** CPU time of a fixed piece of work during the recording; see yardstick.ts. */
  yardstickMs: z.number().positive(),
});
export type About = z.infer<typeof aboutSchema>;

/** One unary call that has ended. */
export interface RecordedCall {
  /** The connections are numbered from 0. */
  readonly connection: number;
  /** Milliseconds since the start of the recording. */
  readonly atMs: number;
  /** `/runtime.v1.RuntimeService/ListContainers` */
  readonly path: string;
  readonly request: Buffer;
  /** Empty for a call that has failed. */
  readonly responses: readonly Buffer[];
  /** The status code of gRPC. */
  readonly status: number;
  /** The status message of gRPC. */
  readonly message: string;
  readonly durationMs: number;
}

/** containerd's answer to a call that only the shim makes, so the recording may not contain it. */
export interface StoredAnswer {
  readonly path: string;
  readonly request: Buffer;
  readonly response: Buffer;
}

/** A file of a cgroup when the recording ended. */
export interface CgroupFile {
  /** `/kubepods/besteffort/pod.../...` */
  readonly cgroup: string;
  /** `memory.max` */
  readonly name: string;
  readonly content: Buffer;
}

export interface Recording {
  readonly about: About;
  /** Sorted by start. */
  readonly calls: readonly RecordedCall[];
  readonly answers: readonly StoredAnswer[];
  readonly cgroups: readonly CgroupFile[];
}

const FORMAT = 'cri-recording 1';
const index = z.int().nonnegative();
const documentSchema = z.strictObject({
  format: z.literal(FORMAT),
  about: aboutSchema,
  /** Lengths of the contents in bytes, in their order. */
  contents: z.array(index),
  /** Texts that calls and cgroups refer to by number: paths, status messages, names of cgroups and files. */
  texts: z.array(z.string()),
  /** Connection, start in units of 0.1 ms, path, request, responses, status, message, duration in units of 0.1 ms. */
  calls: z.array(z.tuple([index, index, index, index, z.array(index), index, index, index])),
  /** Path, request, response. */
  answers: z.array(z.tuple([index, index, index])),
  /** Cgroup, name of the file, content. */
  cgroups: z.array(z.tuple([index, index, index])),
});
type Document = z.infer<typeof documentSchema>;

/** Times are stored in tenths of a millisecond. */
const TENTHS = 10;
const LENGTH_SIZE = 4;

/** Assigns numbers to values. Equal values are stored once and share a number. */
class Numbered<Value> {
  readonly values: Value[] = [];
  readonly #numbers = new Map<string, number>();
  readonly #key: (value: Value) => string;

  constructor(key: (value: Value) => string) {
    this.#key = key;
  }

  numberOf(value: Value): number {
    const key = this.#key(value);
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    this.#numbers.set(key, this.values.length);
    return this.values.push(value) - 1;
  }
}

/** Returns the bytes of the file. */
export function encodeRecording({ about, calls, answers, cgroups }: Recording): Buffer {
  const contents = new Numbered<Buffer>((content) => content.toString('latin1'));
  const texts = new Numbered<string>((text) => text);
  const document: Document = {
    format: FORMAT,
    about,
    calls: calls.map(({ connection, atMs, path, request, responses, status, message, durationMs }) => [
      connection,
      Math.round(atMs * TENTHS),
      texts.numberOf(path),
      contents.numberOf(request),
      responses.map((response) => contents.numberOf(response)),
      status,
      texts.numberOf(message),
      Math.round(durationMs * TENTHS),
    ]),
    answers: answers.map(({ path, request, response }) => [
      texts.numberOf(path),
      contents.numberOf(request),
      contents.numberOf(response),
    ]),
    cgroups: cgroups.map(({ cgroup, name, content }) => [
      texts.numberOf(cgroup),
      texts.numberOf(name),
      contents.numberOf(content),
    ]),
    contents: contents.values.map(({ length }) => length),
    texts: texts.values,
  };
  const json = Buffer.from(JSON.stringify(document));
  const length = Buffer.alloc(LENGTH_SIZE);
  length.writeUInt32BE(json.length);
  return compressed(Buffer.concat([length, json, ...contents.values]));
}

function compressed(bytes: Buffer): Buffer {
  const params = {
    [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
    [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
    [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
  };
  return brotliCompressSync(bytes, { params });
}

/** Reads the bytes of the file. Throws an error that says what is wrong with them. */
export function decodeRecording(file: Buffer): Recording {
  const bytes = decompressed(file);
  if (bytes.length < LENGTH_SIZE) throw new Error('no recording: it is empty');
  const end = LENGTH_SIZE + bytes.readUInt32BE();
  if (end > bytes.length) throw new Error('no recording: it is cut off');
  const document = documentOf(bytes.toString('utf8', LENGTH_SIZE, end));
  const contents = contentsOf(document, bytes.subarray(end));
  const content = (number: number): Buffer => referred(contents, number, 'content');
  const text = (number: number): string => referred(document.texts, number, 'text');
  return {
    about: document.about,
    calls: document.calls.map(([connection, at, path, request, responses, status, message, duration]) => ({
      connection,
      atMs: at / TENTHS,
      path: text(path),
      request: content(request),
      responses: responses.map(content),
      status,
      message: text(message),
      durationMs: duration / TENTHS,
    })),
    answers: document.answers.map(([path, request, response]) => ({
      path: text(path),
      request: content(request),
      response: content(response),
    })),
    cgroups: document.cgroups.map(([cgroup, name, of]) => ({
      cgroup: text(cgroup),
      name: text(name),
      content: content(of),
    })),
  };
}

function decompressed(file: Buffer): Buffer {
  try {
    return brotliDecompressSync(file);
  } catch (error) {
    throw new Error('no recording: it is not compressed with brotli, or cut off', { cause: error });
  }
}

function documentOf(json: string): Document {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw new Error(`no recording: ${messageOf(error)}`, { cause: error });
  }
  const found = typeof value === 'object' && value !== null && 'format' in value ? value.format : undefined;
  if (found !== FORMAT)
    throw new Error(`expected the format ${FORMAT}, found ${found === undefined ? 'none' : JSON.stringify(found)}`);
  const { success, data, error } = documentSchema.safeParse(value);
  if (!success) throw new Error(`no valid recording: ${z.prettifyError(error)}`);
  return data;
}

function contentsOf({ contents }: Document, bytes: Buffer): Buffer[] {
  const sum = contents.reduce((all, length) => all + length, 0);
  if (sum !== bytes.length)
    throw new Error(`no valid recording: expected ${sum} bytes of contents, found ${bytes.length}`);
  let at = 0;
  return contents.map((length) => bytes.subarray(at, (at += length)));
}

function referred<Value>(values: readonly Value[], number: number, what: string): Value {
  const value = values[number];
  if (value === undefined) throw new Error(`no valid recording: ${what} ${number} does not exist`);
  return value;
}

/** Reads a recording. Throws an error that names the file. */
export function readRecording(path: string): Recording {
  try {
    return decodeRecording(readFileSync(path));
  } catch (error) {
    throw new Error(`${path}: ${messageOf(error)}; npm run nightly -- --only record-load makes a new one`, {
      cause: error,
    });
  }
}

export function writeRecording(path: string, recording: Recording): void {
  writeFileSync(path, encodeRecording(recording));
}
