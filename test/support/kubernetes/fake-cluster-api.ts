import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { PostedEvent, TestCertificate } from './fake-api-server.ts';

export interface ServedNode {
  readonly labels: Readonly<Record<string, string>>;
  readonly ready: 'True' | 'False' | 'Unknown';
  /** Time of the last heartbeat of the node's kubelet. `now` means that it has just reported. */
  readonly heartbeat?: string;
  readonly deletionTimestamp?: string;
}

export interface ServedLease {
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly resourceVersion: string;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly spec: { readonly holderIdentity?: string; readonly renewTime?: string; readonly [field: string]: unknown };
}

/** A request in RBAC's terms. */
export interface Call {
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly namespace?: string;
  readonly name?: string;
}

const PATH =
  /^\/(?:api|apis\/(?<group>[^/]+))\/[^/]+(?:\/namespaces\/(?<namespace>[^/]+))?\/(?<resource>[a-z]+)(?:\/(?<name>[^/]+))?$/;
const VERBS: Readonly<Record<string, string>> = { GET: 'get', POST: 'create', PUT: 'update', PATCH: 'patch' };

interface Answer {
  readonly status: number;
  readonly body: unknown;
}
type Body = ServedLease &
  PostedEvent & { readonly metadata: { readonly labels?: Readonly<Record<string, string | null>> } };

/** Replaces the Kubernetes API server: nodes, one Lease that is written as if by many clients, and events. */
export class FakeClusterApi {
  readonly token = 'installer-token';
  readonly calls: Call[] = [];
  readonly events: PostedEvent[] = [];
  readonly nodes = new Map<string, ServedNode>();
  /** The installer's pods, each with the name of its node. */
  readonly pods = new Set<string>();
  /** The rights that are missing: `VERB RESOURCE`. */
  readonly forbidden = new Set<string>();
  /** All holders of the Lease, in order. */
  readonly holders: (string | undefined)[] = [];
  readonly #leases = new Map<string, ServedLease>();
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #version = 1;
  #isAway = false;

  constructor(
    readonly tls?: TestCertificate,
    /** The address at which other hosts reach the server. */
    readonly advertised = '127.0.0.1',
  ) {
    const answer = (request: IncomingMessage, response: ServerResponse): void => void this.#answer(request, response);
    this.#server =
      tls === undefined ? createServer(answer) : createTlsServer({ cert: tls.certificate, key: tls.key }, answer);
    this.#server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
  }

  async start(): Promise<this> {
    // An address that is created with the first pod may not exist yet.
    this.#server.listen(0, this.advertised === '127.0.0.1' ? this.advertised : '0.0.0.0');
    await once(this.#server, 'listening');
    return this;
  }

  async stop(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Sets whether every connection is cut from now on. */
  away(isAway: boolean): void {
    this.#isAway = isAway;
  }

  /** Writes a kubeconfig for this server. */
  kubeconfig(path: string): string {
    const cluster = { server: `http://${this.advertised}:${this.port}`, 'insecure-skip-tls-verify': true };
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'test',
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
      clusters: [{ name: 'test', cluster }],
      users: [{ name: 'test', user: { token: this.token } }],
    };
    writeFileSync(path, JSON.stringify(config), { mode: 0o600 });
    return path;
  }

  set(name: string, node: Partial<ServedNode> = {}): void {
    const before = this.nodes.get(name) ?? { labels: {}, ready: 'True' };
    this.nodes.set(name, { ...before, ...node });
  }

  get lease(): ServedLease | undefined {
    return [...this.#leases.values()][0];
  }

  /** Changes the Lease as another node does, or an operator with kubectl. */
  writeLease(change: (lease: ServedLease) => Pick<ServedLease, 'spec'> & { metadata: object }): void {
    const name = 'cri-resize-shim-installer';
    const blank: ServedLease = { metadata: { name, namespace: 'cri-resize-shim', resourceVersion: '0' }, spec: {} };
    const { metadata, spec } = change(this.lease ?? blank);
    this.#keep({ metadata: { ...blank.metadata, ...metadata }, spec });
  }

  eventReasons(): readonly string[] {
    return this.events.map(({ reason, regarding }) => `${regarding.name}: ${reason}`);
  }

  #keep(lease: ServedLease): ServedLease {
    const kept = { ...lease, metadata: { ...lease.metadata, resourceVersion: String((this.#version += 1)) } };
    const { namespace, name } = kept.metadata;
    this.#leases.set(`${namespace}/${name}`, kept);
    if (this.holders.at(-1) !== kept.spec.holderIdentity || this.holders.length === 0)
      this.holders.push(kept.spec.holderIdentity);
    return kept;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.#isAway) {
      request.socket.destroy();
      return;
    }
    let text = '';
    for await (const chunk of request.setEncoding('utf8') as AsyncIterable<string>) text += chunk;
    const isKnown = request.headers.authorization === `Bearer ${this.token}`;
    const { method = '', url = '' } = request;
    const { status, body } = isKnown ? this.answer(method, url, text) : refusal(401, 'Unauthorized');
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  }

  /** Answers a request of a known client. @param text the body as JSON */
  answer(method: string, url: string, text: string): Answer {
    const { pathname, searchParams } = new URL(url, 'http://api');
    const { group = '', namespace, resource = '', name } = PATH.exec(pathname)?.groups ?? {};
    const verb = method === 'GET' && name === undefined ? 'list' : (VERBS[method] ?? 'unknown');
    this.calls.push({ verb, group, resource, ...(namespace && { namespace }), ...(name && { name }) });
    if (this.forbidden.has(`${verb} ${resource}`)) return refusal(403, forbidding(verb, resource, group));
    const body = text === '' ? undefined : (JSON.parse(text) as Body);
    if (verb === 'list') return this.#list(resource, searchParams);
    if (resource === 'nodes') return this.#node(verb, name ?? '', body);
    if (verb === 'create' && resource === 'events') {
      this.events.push(body!);
      return { status: 201, body };
    }
    if (resource === 'leases') return this.#lease(verb, `${namespace}/${name ?? body?.metadata.name}`, body);
    return refusal(404, 'the server could not find the requested resource');
  }

  /** Lists names in pages, by a selector of the form `LABEL` or `LABEL=VALUE`. */
  #list(resource: string, query: URLSearchParams): Answer {
    const [key = '', value] = query.get('labelSelector')?.split('=') ?? [];
    const labelled = [...this.nodes].filter(([, { labels }]) => labels[key] !== undefined);
    const nodes = labelled.filter(([, { labels }]) => value === undefined || labels[key] === value);
    const all = resource === 'nodes' ? nodes.map(([name]) => name) : [...this.pods];
    const from = Number(query.get('continue') ?? 0);
    const to = from + Number(query.get('limit'));
    const items = all.slice(from, to).map((name) => ({ metadata: { name }, spec: { nodeName: name } }));
    // Nodes are listed as metadata alone, and then the API server has no array for none.
    const isNull = resource === 'nodes' && items.length === 0;
    return {
      status: 200,
      body: { metadata: to < all.length ? { continue: String(to) } : {}, items: isNull ? null : items },
    };
  }

  #node(verb: string, name: string, body: Body | undefined): Answer {
    const node = this.nodes.get(name);
    if (node === undefined) return refusal(404, `nodes "${name}" not found`);
    if (verb === 'patch') {
      const merged = Object.entries({ ...node.labels, ...body?.metadata.labels }).filter(([, text]) => text !== null);
      this.set(name, { labels: Object.fromEntries(merged) as Record<string, string> });
      return { status: 200, body: {} };
    }
    const { labels, ready, heartbeat = new Date().toISOString(), deletionTimestamp } = node;
    // Whole seconds, like metav1.Time.
    const lastHeartbeatTime = heartbeat.replace(/\.\d+Z$/, 'Z');
    const conditions = [
      { type: 'MemoryPressure', status: 'False', lastHeartbeatTime },
      { type: 'Ready', status: ready, lastHeartbeatTime },
    ];
    const metadata = { name, labels, ...(deletionTimestamp && { deletionTimestamp }) };
    return { status: 200, body: { apiVersion: 'v1', kind: 'Node', metadata, spec: {}, status: { conditions } } };
  }

  #lease(verb: string, key: string, body: ServedLease | undefined): Answer {
    const there = this.#leases.get(key);
    if (verb === 'create' && there === undefined) return { status: 201, body: this.#keep(body!) };
    if (verb === 'create') return refusal(409, `leases "${key}" already exists`);
    if (there === undefined) return refusal(404, `leases "${key}" not found`);
    if (verb === 'get') return { status: 200, body: there };
    if (body?.metadata.resourceVersion !== there.metadata.resourceVersion)
      return refusal(409, 'the object has been modified');
    return { status: 200, body: this.#keep(body) };
  }
}

const refusal = (code: number, message: string): Answer => ({
  status: code,
  body: { kind: 'Status', apiVersion: 'v1', status: 'Failure', code, message },
});

/** Returns the message of the API server. */
const forbidding = (verb: string, resource: string, group: string): string =>
  `${resource} is forbidden: User "system:serviceaccount:cri-resize-shim:x" cannot ${verb} resource "${resource}" in API group "${group}"`;
