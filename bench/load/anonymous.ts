import type { Recording } from './recording.ts';

/** Shorter names could occur by chance in a binary number or in a word. */
const SHORTEST_NAME = 5;

/**
 * Replaces names of this machine, such as the folder of the checkout, in all contents and texts. Lengths stay, because
 * protobuf messages have them. Throws RangeError for a name that is too short to be found safely.
 */
export function anonymous(recording: Recording, names: readonly string[]): Recording {
  const short = names.find((name) => name.length < SHORTEST_NAME);
  if (short !== undefined) throw new RangeError(`${JSON.stringify(short)} is too short to be replaced`);
  // Replaces the longest names first, because a name may contain a shorter one.
  const sorted = names.toSorted((a, b) => b.length - a.length);
  const text = (value: string): string =>
    sorted.reduce((result, name) => result.replaceAll(name, replacement(name)), value);
  // Calls share their contents.
  const changed = new Map<Buffer, Buffer>();
  const content = (value: Buffer): Buffer => {
    const known = changed.get(value) ?? Buffer.from(text(value.toString('latin1')), 'latin1');
    changed.set(value, known);
    return known;
  };
  return {
    about: recording.about,
    calls: recording.calls.map((call) => ({
      ...call,
      request: content(call.request),
      responses: call.responses.map(content),
      message: text(call.message),
    })),
    answers: recording.answers.map(({ path, request, response }) => ({
      path,
      request: content(request),
      response: content(response),
    })),
    cgroups: recording.cgroups,
  };
}

/** `/home/someone/checkout` becomes `/xxxxxxxxxxxxxxxxxxxxx`. */
const replacement = (name: string): string => name.replaceAll(/[^/]/g, 'x').replaceAll(/(?<=.)\//g, 'x');
