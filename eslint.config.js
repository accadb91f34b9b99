import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist/', 'node_modules/', 'tools/*.mjs', '*.config.js', '.dependency-cruiser.cjs'] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'separate-type-imports' }],
      'no-console': 'error',
    },
  },
  {
    files: ['src/**/*.ts'],
    rules: { 'max-lines-per-function': ['error', { max: 45, skipBlankLines: true, skipComments: true }] },
  },
  {
    // The system's time may jump. One file reads it, for what is shown or stored; all else uses its steady clock.
    files: ['src/**/*.ts'],
    ignores: ['src/core/concurrency/clock.ts'],
    rules: {
      'no-restricted-properties': [
        'error',
        { object: 'Date', property: 'now', message: 'Use steadyNow, or wallTime for what is shown or stored.' },
      ],
      'no-restricted-syntax': [
        'error',
        {
          selector: ":matches(NewExpression[arguments.length=0], CallExpression)[callee.name='Date']",
          message: 'Use steadyNow, or wallTime for what is shown or stored.',
        },
      ],
    },
  },
  {
    // Tests and command-line tools print; tests may assert what the type system cannot know.
    files: ['test/**/*.ts', 'bench/**/*.ts', 'demo/**/*.ts'],
    rules: { 'no-console': 'off', '@typescript-eslint/no-non-null-assertion': 'off' },
  },
);
