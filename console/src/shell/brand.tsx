/** The mark of Waypost: a signpost. */
export const Mark = ({ size = 20 }: { size?: number }) => (
  <svg className="mark" width={size} height={size} viewBox="0 0 16 16" fill="currentColor" aria-hidden="true">
    <rect x="7" y="1" width="2" height="14" rx="1" />
    <path d="M3 2.5h8.6L14 4.75 11.6 7H3a1 1 0 0 1-1-1V3.5a1 1 0 0 1 1-1Z" />
    <path opacity=".55" d="M13 8.25H5.4L3 10.25l2.4 2H13a1 1 0 0 0 1-1v-2a1 1 0 0 0-1-1Z" />
  </svg>
);
