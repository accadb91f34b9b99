import { readFileSync } from 'node:fs';
import type { RequestOptions } from 'node:https';
import { dirname, resolve } from 'node:path';
import { KubeConfig, type User } from '@kubernetes/client-node';
import { parse } from 'yaml';
import * as z from 'zod/mini';
import { errnoOf } from '../../core/errors/index.ts';
import { ApiUnreached } from './errors.ts';

/** What `--kubeconfig` says for a shim that runs as a pod: the service account that the pod has. */
export const IN_CLUSTER = 'in-cluster';

/** Where the API server is, and how we show who we are. */
export interface Connection {
  readonly server: URL;
  readonly options: RequestOptions;
}

/**
 * Reads the kubeconfig anew each time, with the files that it names: tokens and certificates are rotated. Rejects with
 * ApiUnreached, whose message quotes nothing of the file.
 */
export async function openConnection(kubeconfig: string): Promise<Connection> {
  const config = readConfig(kubeconfig);
  const options: RequestOptions = { headers: {} };
  const server = config.getCurrentCluster()?.server;
  if (server === undefined || !URL.canParse(server)) throw unusable(kubeconfig, 'its context names no server');
  assertRunsNothing(kubeconfig, config.getCurrentUser());
  try {
    await config.applyToHTTPSOptions(options);
  } catch (error) {
    // A token or certificate file, or http: without insecure-skip-tls-verify.
    throw unusable(kubeconfig, `what it says of server and user cannot be used (${errnoOf(error) ?? 'no errno'})`);
  }
  return { server: new URL(server), options: { ...options, headers: withoutBlanks(options.headers) } };
}

function readConfig(kubeconfig: string): KubeConfig {
  const config = new KubeConfig();
  try {
    if (kubeconfig === IN_CLUSTER) config.loadFromCluster();
    else {
      config.loadFromString(readKubeconfig(kubeconfig));
      config.makePathsAbsolute(dirname(kubeconfig));
    }
  } catch (error) {
    // The parser's message quotes the line, and a token may be in it.
    throw unusable(kubeconfig, `cannot be read (${errnoOf(error) ?? 'it is no kubeconfig'})`);
  }
  return config;
}

const userSchema = z.looseObject({ tokenFile: z.exactOptional(z.string()) });
const usersSchema = z.looseObject({ users: z.nullish(z.array(z.looseObject({ user: z.nullish(userSchema) }))) });

/** As client-node reads it: of a token's file it does not know the name that kubectl has for it (clientcmd/api/v1, AuthInfo). */
function readKubeconfig(kubeconfig: string): string {
  const content = usersSchema.parse(parse(readFileSync(kubeconfig, 'utf8')));
  const users = content.users?.map(({ user, ...named }) => {
    if (user?.tokenFile === undefined) return { ...named, user };
    return { ...named, user: { ...user, 'token-file': resolve(dirname(kubeconfig), user.tokenFile) } };
  });
  return JSON.stringify({ ...content, users });
}

/** client-node runs such programs synchronously: every call of the node would wait for them. */
function assertRunsNothing(kubeconfig: string, user: User | null): void {
  const provider = user?.authProvider as { readonly config?: { readonly tokenFile?: unknown } } | undefined;
  const runs = user?.exec !== undefined || (provider !== undefined && provider.config?.tokenFile === undefined);
  if (runs) throw unusable(kubeconfig, 'its user is a program to be run; give a token, a token file or a certificate');
}

/** A token file may end in a line break, which no header may have. */
function withoutBlanks(headers: RequestOptions['headers']): Record<string, string> {
  const all = Object.entries((headers ?? {}) as Readonly<Record<string, unknown>>);
  return Object.fromEntries(all.map(([name, value]) => [name, String(value).trim()]));
}

const unusable = (kubeconfig: string, why: string): ApiUnreached =>
  new ApiUnreached(`kubeconfig ${kubeconfig}: ${why}`);
