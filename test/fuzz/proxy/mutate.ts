import { ReferenceEncoder } from '../../support/http2/reference-hpack.ts';
import { frame, headers, request } from '../../support/http2/wire.ts';
import type { Random } from '../random.ts';
import type { Conversation, FuzzSide, Step } from './corpus.ts';

/** Values at which HTTP/2 implementations have failed: limits of windows and sizes, and their neighbours. */
const NUMBERS = [0, 1, 9, 16_383, 16_384, 16_385, 65_535, 65_536, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1];
const SIDES: readonly FuzzSide[] = ['client', 'client', 'backend', 'local'];
const NAMES = [':path', ':method', 'te', 'grpc-encoding', 'grpc-timeout', 'x', ''];

/** Returns the offsets at which frames start. */
function boundaries(bytes: Buffer): number[] {
  const places: number[] = [];
  let at = bytes.length > 24 && bytes.toString('latin1', 0, 3) === 'PRI' ? 24 : 0;
  while (bytes.length - at >= 9) {
    places.push(at);
    at += 9 + bytes.readUIntBE(at, 3);
  }
  return places;
}

function frameAt(bytes: Buffer, at: number): Buffer {
  return bytes.subarray(at, Math.min(bytes.length, at + 9 + bytes.readUIntBE(at, 3)));
}

function randomFrame(random: Random): Buffer {
  const length = random.pick([0, 1, 4, 5, 6, 8, 9, 12, random.below(300)]);
  const id = random.pick([0, 1, 2, 3, 5, 7, 9, 11, random.below(40), random.next() >>> 1]);
  return frame(
    random.below(11),
    random.pick([0, 1, 4, 5, 8, 13, 0x20, 0x25, random.below(256)]),
    id,
    random.bytes(length),
  );
}

function randomHeaders(random: Random): Buffer {
  const id = random.pick([1, 3, 5, 7, 2 * random.below(30) + 1]);
  if (random.chance(3)) return frame(1, 4 | random.below(2), id, random.bytes(random.below(80)));
  const fields = Array.from({ length: random.below(6) }, () => ({
    name: random.pick(NAMES),
    value: random.bytes(random.below(20)).toString('latin1'),
    huffman: random.chance(2),
    index: random.chance(2),
    sensitive: random.chance(4),
  }));
  const path = random.pick(['/pass/R', '/handle/R', '/amend/R']);
  if (random.chance(2)) return headers(id, request(path, fields), random.chance(2));
  const size = random.chance(3) ? random.below(5000) : undefined;
  return frame(1, 4 | random.below(2), id, new ReferenceEncoder(4096).encode(fields, size));
}

type Mutation = (bytes: Buffer, random: Random) => Buffer;

const splice = (bytes: Buffer, at: number, removed: number, added: Buffer): Buffer =>
  Buffer.concat([bytes.subarray(0, at), added, bytes.subarray(at + removed)]);

const atFrame =
  (change: (bytes: Buffer, at: number, random: Random) => Buffer): Mutation =>
  (bytes, random) => {
    const places = boundaries(bytes);
    return places.length === 0 ? bytes : change(bytes, random.pick(places), random);
  };

const overwrite = (bytes: Buffer, at: number, value: number, size: number): Buffer => {
  if (at + size > bytes.length) return bytes;
  const copy = Buffer.from(bytes);
  copy.writeUIntBE(value % 2 ** (8 * size), at, size);
  return copy;
};

const MUTATIONS: readonly Mutation[] = [
  // Flips bits.
  (bytes, random) => {
    if (bytes.length === 0) return bytes;
    const copy = Buffer.from(bytes);
    for (let flips = 1 + random.below(8); flips > 0; flips -= 1)
      copy[random.below(copy.length)]! ^= 1 << random.below(8);
    return copy;
  },
  // Removes, truncates or repeats bytes or a frame.
  (bytes, random) => splice(bytes, random.below(bytes.length + 1), 1 + random.below(20), Buffer.alloc(0)),
  (bytes, random) => bytes.subarray(0, random.below(bytes.length + 1)),
  atFrame((bytes, at) => splice(bytes, at, frameAt(bytes, at).length, Buffer.alloc(0))),
  atFrame((bytes, at) => splice(bytes, at, 0, frameAt(bytes, at))),
  // Moves a frame.
  atFrame((bytes, at, random) => {
    const moved = frameAt(bytes, at);
    const rest = splice(bytes, at, moved.length, Buffer.alloc(0));
    return splice(rest, random.pick([0, ...boundaries(rest)]), 0, moved);
  }),
  // Overwrites length, type, flags, stream id, and the first numbers of the payload.
  atFrame((bytes, at, random) => overwrite(bytes, at, random.pick([...NUMBERS, random.below(64)]), 3)),
  atFrame((bytes, at, random) => overwrite(bytes, at + 3, random.below(12), 1)),
  atFrame((bytes, at, random) => overwrite(bytes, at + 4, random.below(256), 1)),
  atFrame((bytes, at, random) => overwrite(bytes, at + 5, random.pick([0, 1, 2, 3, 5, 7, 9, 2 ** 31]), 4)),
  atFrame((bytes, at, random) => overwrite(bytes, at + 9, random.pick(NUMBERS), 4)),
  atFrame((bytes, at, random) => overwrite(bytes, at + 11, random.pick(NUMBERS), 4)),
  // Inserts other frames or bytes.
  atFrame((bytes, at, random) => splice(bytes, at, 0, randomFrame(random))),
  atFrame((bytes, at, random) => splice(bytes, at, 0, randomHeaders(random))),
  (bytes, random) => splice(bytes, random.below(bytes.length + 1), 0, random.bytes(random.below(40))),
];

/** Changes the frames of one side. */
export const mutateFrames: Mutation = (bytes, random) => random.pick(MUTATIONS)(bytes, random);

/** Returns the conversation with one to four mutations. */
export function mutate(conversation: Conversation, random: Random): Step[] {
  const steps = [...conversation];
  for (let count = 1 + random.below(4); count > 0; count -= 1) {
    const at = random.below(steps.length);
    const step = steps[at]!;
    const kind = random.below(20);
    if (kind === 0) steps.splice(at, 1);
    else if (kind === 1) steps.splice(random.below(steps.length), 0, step);
    else if (kind === 2) steps[at] = { side: random.pick(SIDES), bytes: step.bytes };
    else if (kind === 3) steps.splice(at, 0, { side: random.pick(SIDES), bytes: randomFrame(random) });
    else steps[at] = { side: step.side, bytes: mutateFrames(step.bytes, random) };
    if (steps.length === 0) return steps;
  }
  return steps;
}
