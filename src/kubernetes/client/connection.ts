import { readFileSync } from 'node:fs';
import type { RequestOptions } from 'node:https';
import { dirname, resolve } from 'node:path';
import { KubeConfig, type User } from '@kubernetes/client-node';
import { parse } from 'yaml';
import * as z from 'zod/mini';
import { errnoOf } from '../../core/index.ts';
import { ApiUnreached } from './errors.ts';

/** Value of `--kubeconfig` for the service account of the pod. */
export const IN_CLUSTER = 'in-cluster';

/** Address of the API server, with credentials. */
export interface Connection {
  readonly server: URL;
  readonly options: RequestOptions;
}

/**
 * Reads the kubeconfig and its files. Called for each request, because tokens and certificates are rotated. Rejects
 * with ApiUnreached, whose message quotes nothing of the file.
 */
export async function openConnection(kubeconfig: string): Promise<Connection> {
  const config = readConfig(kubeconfig);
  const options: RequestOptions = { headers: {} };
  const server = config.getCurrentCluster()?.server;
  if (server === undefined || !URL.canParse(server)) throw unusable(kubeconfig, 'its context has no server');
  assertRunsNothing(kubeconfig, config.getCurrentUser());
  try {
    await config.applyToHTTPSOptions(options);
  } catch (error) {
    // A token or certificate file, or http: without insecure-skip-tls-verify.
    throw unusable(kubeconfig, `its server or user settings are invalid (${errnoOf(error) ?? 'no errno'})`);
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
    throw unusable(kubeconfig, `cannot be read (${errnoOf(error) ?? 'not a kubeconfig'})`);
  }
  return config;
}

const userSchema = z.looseObject({ tokenFile: z.exactOptional(z.string()) });
const usersSchema = z.looseObject({ users: z.nullish(z.array(z.looseObject({ user: z.nullish(userSchema) }))) });

/** Renames kubectl's `tokenFile` (clientcmd/api/v1, AuthInfo) to `token-file`, which client-node expects. */
function readKubeconfig(kubeconfig: string): string {
  const content = usersSchema.parse(parse(readFileSync(kubeconfig, 'utf8')));
  const users = content.users?.map(({ user, ...named }) => {
    if (user?.tokenFile === undefined) return { ...named, user };
    return { ...named, user: { ...user, 'token-file': resolve(dirname(kubeconfig), user.tokenFile) } };
  });
  return JSON.stringify({ ...content, users });
}

/** Rejects exec users: client-node runs their programs synchronously, and every call on the node would wait. */
function assertRunsNothing(kubeconfig: string, user: User | null): void {
  const provider = user?.authProvider as { readonly config?: { readonly tokenFile?: unknown } } | undefined;
  const runs = user?.exec !== undefined || (provider !== undefined && provider.config?.tokenFile === undefined);
  if (runs)
    throw unusable(
      kubeconfig,
      'its user runs a program (exec), which is not supported; use a token, a token file or a certificate',
    );
}

/** Trims headers: a token file may end with a line break, which is invalid in a header. */
function withoutBlanks(headers: RequestOptions['headers']): Record<string, string> {
  const all = Object.entries((headers ?? {}) as Readonly<Record<string, unknown>>);
  return Object.fromEntries(all.map(([name, value]) => [name, String(value).trim()]));
}

const unusable = (kubeconfig: string, why: string): ApiUnreached =>
  new ApiUnreached(`kubeconfig ${kubeconfig}: ${why}`);
