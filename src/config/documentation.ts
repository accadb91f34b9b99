import { stringify } from 'yaml';
import { apiVersion, configKeys, flagOf, kind, settingOf } from './schema.ts';

/**
 * Returns a configuration file with every setting at its default value. With `isCommentedOut`, each setting is a comment with its
 * description: packages ship this file for users to edit, and unedited settings keep the defaults of the installed version.
 */
export function configurationExample({ isCommentedOut }: { readonly isCommentedOut: boolean }): string {
  const settings = configKeys.flatMap((key) => {
    const { fallback, isBoolean, description, allowed } = settingOf(key);
    const line = `${key}: ${isBoolean ? fallback : stringify(fallback).trimEnd()}`;
    return isCommentedOut ? ['', `# ${description}`, `# Allowed: ${allowed}.`, `#${line}`] : [line];
  });
  return `${[`apiVersion: ${apiVersion}`, `kind: ${kind}`, ...settings].join('\n')}\n`;
}

/** Returns the text of docs/configuration.md, generated from the schema. A test compares it with the file. */
export function configurationPage(): string {
  const rows = configKeys.map((key) => {
    const { allowed, description, fallback } = settingOf(key);
    return `| \`${key}\` | \`${flagOf(key)}\` | ${fallback === '' ? 'empty' : `\`${fallback}\``} | ${allowed} | ${description} |`;
  });
  return `# Configuration

This page lists every setting of the shim, its flag, its default and its allowed values.

Settings come from flags and from a YAML file (\`--config FILE\`). Flags take precedence over the file, and the file over defaults. The
shim does not start with an unknown key or an invalid value: it prints the key, the value and the allowed values, and exits with code 2 for
the command line or 1 for the file.

| key in the file | flag | default | allowed | meaning |
|---|---|---|---|---|
${rows.join('\n')}

\`--version\` and \`--help\` print and exit. The value of a boolean flag is optional: \`--intercept\` means \`--intercept=true\`.

## The file

This file has the default values. \`apiVersion\` and \`kind\` are optional: a file without them is read as this version.

\`\`\`yaml
${configurationExample({ isCommentedOut: false }).trimEnd()}
\`\`\`

## Who may connect

The CRI socket and its folder get the owner and mode of the backend's socket and folder, and never wider permissions. Until the backend's
socket exists, only root may connect. The shim does not change a folder that contains other files (such as \`/run\`). If that folder is open
to users who cannot reach the backend's socket, the shim restricts the mode of its own socket instead.

The socket of the resize API belongs to the user that runs the shim and has the mode \`resizeSocketMode\`. It exists only if \`intercept\`
is true.

Metrics (\`metricsBind\`) are available only on this machine: on a loopback address to all its users, on a unix socket to the user that runs
the shim (mode 0600). Other addresses are rejected. \`localhost\` is 127.0.0.1.

The shim does not change the owner or mode of sockets that systemd passes to it ([units.md](units.md)).

## Stopping

On SIGTERM or SIGINT the shim stops accepting connections, sends GOAWAY to every client, lets running calls finish for up to
\`shutdownTimeout\` and exits with code 0. It then cancels calls that are still running and logs their number as a warning. It ends watches
(GetContainerEvents) when no other call is running. A second signal ends the shim immediately, with exit code 130 (SIGINT) or 143 (SIGTERM).
Exit code 1 means that the shim could not start or could not continue to serve.
`;
}
