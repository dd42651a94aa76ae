// A value that is shown at most this often, and in the end the newest one.
import { useEffect, useRef, useState } from "preact/hooks";

export function useThrottled<Value>(value: Value, interval: number): Value {
  const [shown, setShown] = useState(value);
  const shownAt = useRef(0);
  useEffect(() => {
    const timer = setTimeout(() => {
      shownAt.current = Date.now();
      setShown(value);
    }, Math.max(0, shownAt.current + interval - Date.now()));
    return () => clearTimeout(timer);
  }, [value]);
  return shown;
}
