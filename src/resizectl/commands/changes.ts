import { parseMilli, parseQuantity } from '../../core/quantities/index.ts';
import { UsageError } from '../output/index.ts';

/** Limits or requests, as they are sent. */
export interface Amounts {
  cpu?: string;
  memory?: string;
}

/** What ResizePodRequest asks of a pod. */
export interface AskedOfPod {
  readonly resources?: { readonly limits?: Amounts; readonly requests?: Amounts };
  readonly containers: Readonly<Record<string, { readonly limits?: Amounts; readonly requests?: Amounts }>>;
  readonly volumes: Readonly<Record<string, string>>;
}

type Wish =
  | { readonly kind: 'volume'; readonly name: string; readonly size: string }
  | {
      readonly kind: 'amount';
      /** Undefined: the pod. */
      readonly container: string | undefined;
      readonly of: 'limits' | 'requests';
      readonly what: 'cpu' | 'memory';
      readonly amount: string;
    };

/** Reads `app.cpu=500m pod.memory=1Gi volume.cache=50%`. Throws UsageError for what is none of that, or there twice. */
export function readWishes(texts: readonly string[]): AskedOfPod {
  let pod: { limits?: Amounts; requests?: Amounts } | undefined;
  const containers = new Map<string, { limits?: Amounts; requests?: Amounts }>();
  const volumes = new Map<string, string>();
  for (const text of texts) {
    const wish = readWish(text);
    if (wish.kind === 'volume') {
      if (volumes.has(wish.name)) throw twice(text);
      volumes.set(wish.name, wish.size);
      continue;
    }
    const { container, of, what, amount } = wish;
    const asked = container === undefined ? (pod ??= {}) : (containers.get(container) ?? {});
    if (container !== undefined) containers.set(container, asked);
    if (asked[of]?.[what] !== undefined) throw twice(text);
    asked[of] = { ...asked[of], [what]: amount };
  }
  return {
    ...(pod !== undefined && { resources: pod }),
    containers: Object.fromEntries(containers),
    volumes: Object.fromEntries(volumes),
  };
}

const forms =
  'CONTAINER.cpu=500m, CONTAINER.memory=256Mi, pod.memory=1Gi, CONTAINER.requests.cpu=250m or volume.NAME=50%';

function readWish(text: string): Wish {
  const [, key = '', value = ''] = /^([^=]+)=(.+)$/s.exec(text) ?? [];
  const [, volume] = /^volume\.([^./]+)$/.exec(key) ?? [];
  if (volume !== undefined) return { kind: 'volume', name: volume, size: value };
  const [, isNamed, name = '', of = 'limits', what] =
    /^(container\/)?([^./]+)\.(?:(limits|requests)\.)?(cpu|memory)$/.exec(key) ?? [];
  if ((of !== 'limits' && of !== 'requests') || (what !== 'cpu' && what !== 'memory'))
    throw new UsageError(`${JSON.stringify(text)} is no wish: want ${forms}`);
  const container = name === 'pod' && isNamed === undefined ? undefined : name;
  return { kind: 'amount', container, of, what, amount: readAmount(key, of, what, value) };
}

const twice = (text: string): UsageError => new UsageError(`${text.split('=', 1).join('')} is asked for twice`);

function readAmount(key: string, of: 'limits' | 'requests', what: 'cpu' | 'memory', text: string): string {
  if (of === 'limits' && (text === 'max' || text === '-1')) return 'max';
  const value = what === 'cpu' ? parseMilli(text) : parseQuantity(text);
  if (value === undefined) {
    const want = what === 'cpu' ? 'CPUs, as in 500m or 1.5' : 'an amount of memory, as in 256Mi or 1G';
    throw new UsageError(
      `${key}: ${JSON.stringify(text)} is no quantity: want ${want}${of === 'limits' ? ', or max for no limit' : ''}`,
    );
  }
  // The API keeps what is set then, which nobody means who writes it.
  if (value === 0)
    throw new UsageError(`${key}: 0 is no ${of === 'limits' ? 'limit; max takes it away' : 'request; leave it out'}`);
  return text;
}
