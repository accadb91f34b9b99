import { stringify } from 'yaml';
import { apiVersion, configKeys, kind, settingOf } from './schema.ts';

/**
 * Returns a configuration file with every setting at its default value. With `isCommentedOut`, each setting is a
 * comment with its description: packages ship this file for users to edit, and unedited settings keep the defaults of
 * the installed version.
 */
export function configurationExample({ isCommentedOut }: { readonly isCommentedOut: boolean }): string {
  const settings = configKeys.flatMap((key) => {
    const { fallback, isBoolean, description, allowed } = settingOf(key);
    const line = `${key}: ${isBoolean ? fallback : stringify(fallback).trimEnd()}`;
    return isCommentedOut ? ['', `# ${description}`, `# Allowed: ${allowed}.`, `#${line}`] : [line];
  });
  return `${[`apiVersion: ${apiVersion}`, `kind: ${kind}`, ...settings].join('\n')}\n`;
}
