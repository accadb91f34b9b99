import type { Random } from '../random.ts';
import { mutateBytes } from './bytes.ts';
import { hostileText } from './values.ts';

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** Returns JSON of a value with one to three changes of its structure, sometimes torn or with changed bytes. */
export function mutateJson(value: unknown, random: Random): string {
  let changed = structuredClone(value) as Json;
  for (let count = random.below(4); count > 0; count -= 1) changed = changedWithin(changed, random, 0);
  const text = JSON.stringify(changed);
  return random.chance(4) ? mutateBytes(Buffer.from(text), random).toString('latin1') : text;
}

/** The deepest change: the stack of Node 24 ends at fewer levels than that of Node 26. */
const DEEPEST = 100;

/** Changes this value, or one inside it. */
function changedWithin(value: Json, random: Random, depth: number): Json {
  const isInside = typeof value === 'object' && value !== null && Object.keys(value).length > 0;
  if (!isInside || depth === DEEPEST || random.chance(6 + 4 * depth)) return replacement(value, random);
  const names = Object.keys(value);
  const name = random.pick(names);
  const inner = value as { [name: string]: Json };
  switch (random.below(10)) {
    case 0:
      if (Array.isArray(value)) value.splice(Number(name), 1);
      else Reflect.deleteProperty(inner, name);
      return value;
    case 1:
      if (Array.isArray(value)) value.push(structuredClone(value[Number(name)]!));
      else define(inner, hostileText(random), structuredClone(inner[name]!));
      return value;
    default:
      inner[name] = changedWithin(inner[name]!, random, depth + 1);
      return value;
  }
}

/** An assignment to `__proto__` would add no property. */
const define = (object: object, name: string, value: Json): void =>
  void Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });

function replacement(value: Json, random: Random): Json {
  switch (random.below(9)) {
    case 0:
      return null;
    case 1:
      return random.chance(2);
    case 2:
      return random.pick([0, -1, 0.5, 2 ** 31, 2 ** 53, 1e300, random.next()]);
    case 3:
      return [];
    case 4:
      return {};
    case 5:
      return [value, value];
    case 6:
      return nested(random.pick([3, 50, 500]));
    default:
      return hostileText(random);
  }
}

function nested(depth: number): Json {
  let value: Json = 1;
  for (let level = 0; level < depth; level += 1) value = [value];
  return value;
}
