import { parseMilli, parseQuantity, suggestion } from '../../core/index.ts';
import { UsageError } from '../output/failure.ts';

/** Limits or requests in the form of the resize API. */
export interface Amounts {
  cpu?: string;
  memory?: string;
}

interface Resources {
  limits?: Amounts;
  requests?: Amounts;
}

/** The new values of a pod in the form of ResizePodRequest. */
export interface RequestedValues {
  readonly resources?: Readonly<Resources>;
  readonly containers: Readonly<Record<string, Readonly<Resources>>>;
  readonly volumes: Readonly<Record<string, string>>;
}

type Change =
  | { readonly kind: 'volume'; readonly name: string; readonly size: string }
  | {
      readonly kind: 'amount';
      /** Undefined: the pod itself. */
      readonly container: string | undefined;
      readonly field: 'limits' | 'requests';
      readonly resource: 'cpu' | 'memory';
      readonly amount: string;
    };

/** Parses changes: `app.cpu=500m pod.memory=1Gi volume.cache=50%`. Throws UsageError for invalid or repeated ones. */
export function parseChanges(texts: readonly string[]): RequestedValues {
  let pod: Resources | undefined;
  const containers = new Map<string, Resources>();
  const volumes = new Map<string, string>();
  for (const text of texts) {
    const change = parseChange(text);
    if (change.kind === 'volume') {
      if (volumes.has(change.name)) throw repeated(text);
      volumes.set(change.name, change.size);
      continue;
    }
    const { container, field, resource, amount } = change;
    const values = container === undefined ? (pod ??= {}) : (containers.get(container) ?? {});
    if (container !== undefined) containers.set(container, values);
    if (values[field]?.[resource] !== undefined) throw repeated(text);
    values[field] = { ...values[field], [resource]: amount };
  }
  return {
    ...(pod !== undefined && { resources: pod }),
    containers: Object.fromEntries(containers),
    volumes: Object.fromEntries(volumes),
  };
}

const forms =
  'CONTAINER.cpu=QUANTITY, CONTAINER.memory=QUANTITY, CONTAINER.requests.cpu=QUANTITY, pod.cpu=QUANTITY, pod.memory=QUANTITY or volume.NAME=SIZE';

function parseChange(text: string): Change {
  const [, key = '', value = ''] = /^([^=]+)=(.+)$/s.exec(text) ?? [];
  const [, volume] = /^volume\.([^./]+)$/.exec(key) ?? [];
  if (volume !== undefined) return { kind: 'volume', name: volume, size: value };
  const [, prefix, name = '', field = 'limits', resource] =
    /^(container\/)?([^./]+)\.(?:(limits|requests)\.)?(cpu|memory)$/.exec(key) ?? [];
  if ((field !== 'limits' && field !== 'requests') || (resource !== 'cpu' && resource !== 'memory'))
    throw new UsageError(`invalid change ${JSON.stringify(text)}: expected ${forms}${nearIn(key)}`);
  const container = name === 'pod' && prefix === undefined ? undefined : name;
  return { kind: 'amount', container, field, resource, amount: parseAmount(key, field, resource, value) };
}

/** Suggests the known word most similar to a part of the key, for `app.memroy` or `app.request.cpu`. */
const nearIn = (key: string): string =>
  key
    .split('.')
    .slice(1)
    .map((part) => (parts.includes(part) ? '' : suggestion(part, parts)))
    .findLast((near) => near !== '') ?? '';

const parts: readonly string[] = ['cpu', 'memory', 'limits', 'requests'];

const repeated = (text: string): UsageError => new UsageError(`${text.split('=', 1).join('')} is set twice`);

function parseAmount(key: string, field: 'limits' | 'requests', resource: 'cpu' | 'memory', text: string): string {
  if (field === 'limits' && text === 'max') return 'max';
  const value = resource === 'cpu' ? parseMilli(text) : parseQuantity(text);
  if (value === undefined) {
    const expected = resource === 'cpu' ? 'CPUs such as 500m or 1.5' : 'an amount of memory such as 256Mi or 1G';
    const orMax = field === 'limits' ? ', or max for no limit' : '';
    throw new UsageError(`${key}: invalid quantity ${JSON.stringify(text)}: expected ${expected}${orMax}`);
  }
  // Kubernetes reads 0 as no limit, and CRI as no change.
  if (value === 0)
    throw new UsageError(
      field === 'limits'
        ? `${key}: invalid limit 0: use max to remove the limit`
        : `${key}: invalid request 0: leave it out to keep the current request`,
    );
  return text;
}
