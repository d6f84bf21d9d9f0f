package dev.edgedec.demo

import android.annotation.TargetApi
import android.content.Context
import android.os.Build
import android.os.PerformanceHintManager
import android.os.Process
import dev.edgedec.core.Emission
import dev.edgedec.core.Figures
import dev.edgedec.core.Listener
import java.io.File
import java.io.IOException

/** What Android is told about threads that work on tokens. */
interface HintSession : AutoCloseable {
    fun target(tokenNs: Long)

    fun report(tokenNs: Long)
}

/**
 * Tells Android how long a token takes, so that it gives the decoder's threads the clocks they need.
 *
 * The target is the least time that a token of the text took: the clocks are to stay where they were then.
 *
 * @param begin starts a session with a first target, on the decoder's thread; null if the phone takes no hints
 */
class PaceHint(private val clock: () -> Long = System::nanoTime, private val begin: (tokenNs: Long) -> HintSession?) {
    /** Returns a listener to one text that passes everything on to [listener]. */
    fun follow(listener: Listener): Listener = Following(listener)

    private inner class Following(private val listener: Listener) : Listener by listener {
        private var session: HintSession? = null
        private var best = Long.MAX_VALUE
        private var last: Long? = null

        override fun onTokens(tokens: List<Emission>) {
            val now = clock()
            // The first round's time is the prompt's.
            last?.let { report((now - it) / maxOf(1, tokens.size)) }
            last = now
            listener.onTokens(tokens)
        }

        override fun onEnd(figures: Figures) {
            session?.close()
            listener.onEnd(figures)
        }

        override fun onError(message: String) {
            session?.close()
            listener.onError(message)
        }

        private fun report(tokenNs: Long) {
            if (tokenNs <= 0) return
            val first = best == Long.MAX_VALUE
            if (first) session = begin(tokenNs) else if (tokenNs < best) session?.target(tokenNs)
            best = minOf(best, tokenNs)
            session?.report(tokenNs)
        }
    }

    companion object {
        val none = PaceHint { null }

        /** Returns hints for Android 12 and later; none elsewhere, or where the phone takes none. */
        fun of(context: Context): PaceHint =
            if (Build.VERSION.SDK_INT < Build.VERSION_CODES.S) none else managed(context)

        @TargetApi(Build.VERSION_CODES.S)
        private fun managed(context: Context): PaceHint {
            val manager: PerformanceHintManager? = context.getSystemService(PerformanceHintManager::class.java)
            if (manager == null) return none
            return PaceHint { tokenNs -> manager.createHintSession(decodingThreads(), tokenNs)?.let(::Managed) }
        }
    }
}

@TargetApi(Build.VERSION_CODES.S)
private class Managed(private val session: PerformanceHintManager.Session) : HintSession {
    override fun target(tokenNs: Long) = session.updateTargetWorkDuration(tokenNs)

    override fun report(tokenNs: Long) = session.reportActualWorkDuration(tokenNs)

    override fun close() = session.close()
}

/** This thread, and those that it started for ONNX Runtime, which have its name. */
private fun decodingThreads(): IntArray {
    val own = Process.myTid()
    val name = threadName(own)
    val all = File("/proc/self/task").list().orEmpty().mapNotNull { it.toIntOrNull() }
    return all.filter { it == own || (name != null && threadName(it) == name) }.toIntArray()
}

private fun threadName(id: Int): String? = try {
    File("/proc/self/task/$id/comm").readText().trim()
} catch (_: IOException) {
    null
}
