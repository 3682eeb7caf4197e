// Draws every committed PNG from airlock.svg with rsvg-convert: `npm run icons`.
import { spawnSync } from 'node:child_process'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = dirname(fileURLToPath(import.meta.url))
const sizes = { '32x32.png': 32, '128x128.png': 128, '128x128@2x.png': 256, '512x512.png': 512, 'icon.png': 512 }

for (const [name, size] of Object.entries(sizes)) {
  const made = spawnSync('rsvg-convert', ['-w', size, '-h', size, '-o', join(here, name), join(here, 'airlock.svg')], { stdio: 'inherit' })
  if (made.error?.code === 'ENOENT') {
    console.error('rsvg-convert is missing; it draws the icons. Debian and Ubuntu: librsvg2-bin. Fedora: librsvg2-tools. Arch: librsvg.')
    process.exit(1)
  }
  if (made.status !== 0) process.exit(made.status ?? 1)
  console.log(`icons/${name}`)
}
