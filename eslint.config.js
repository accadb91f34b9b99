import tseslint from 'typescript-eslint';

const STEADY = 'Use steadyNow, or wallTime for what is shown or stored.';
const dateSyntax = {
  selector: ":matches(NewExpression[arguments.length=0], CallExpression)[callee.name='Date']",
  message: STEADY,
};
const product = "BinaryExpression[operator='*'][right.value=1024]";
const mebibyteSyntax = {
  selector: [
    `${product}:matches([left.value=1024], [left.right.value=1024])`,
    "BinaryExpression[operator='<<'][left.value=1][right.value=20]",
    "BinaryExpression[operator='**']:matches([left.value=2][right.value=20], [left.value=1024][right.value=2])",
    'Literal[value=1048576][raw=/^[0-9]/]',
  ].join(', '),
  message: 'Use MiB of core/quantities.',
};

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
      'no-restricted-properties': ['error', { object: 'Date', property: 'now', message: STEADY }],
      'no-restricted-syntax': ['error', dateSyntax, mebibyteSyntax],
    },
  },
  {
    files: ['src/core/quantities/sizes.ts'],
    rules: { 'no-restricted-syntax': ['error', dateSyntax] },
  },
  {
    // Tests and command-line tools print; tests may assert what the type system cannot know.
    files: ['test/**/*.ts', 'bench/**/*.ts', 'demo/**/*.ts'],
    rules: {
      'no-console': 'off',
      'no-restricted-syntax': ['error', mebibyteSyntax],
      '@typescript-eslint/no-non-null-assertion': 'off',
    },
  },
);
