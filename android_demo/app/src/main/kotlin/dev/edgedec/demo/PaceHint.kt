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

/** Tells Android how long a token takes, so that it gives the decoder's threads the clocks they need. */
interface PaceHint {
    /** Returns a listener that passes everything on to [listener]. */
    fun follow(listener: Listener): Listener

    companion object {
        /** Tells nothing. */
        val none: PaceHint = object : PaceHint {
            override fun follow(listener: Listener) = listener
        }

        /** Returns hints for Android 12 and later; none elsewhere, or where the phone takes none. */
        fun of(context: Context): PaceHint {
            val manager = if (Build.VERSION.SDK_INT < Build.VERSION_CODES.S) null else manager(context)
            return if (manager == null) none else SessionHint(manager)
        }

        @TargetApi(Build.VERSION_CODES.S)
        private fun manager(context: Context) = context.getSystemService(PerformanceHintManager::class.java)
    }
}

/** A hint session for each text, made on the decoder's thread when the first tokens come. */
@TargetApi(Build.VERSION_CODES.S)
private class SessionHint(private val manager: PerformanceHintManager) : PaceHint {
    override fun follow(listener: Listener): Listener = Following(listener)

    private inner class Following(private val listener: Listener) : Listener {
        private var session: PerformanceHintManager.Session? = null
        private var best = Long.MAX_VALUE
        private var last = 0L

        override fun onTokens(tokens: List<Emission>) {
            val now = System.nanoTime()
            if (last > 0 && tokens.isNotEmpty()) report((now - last) / tokens.size)
            listener.onTokens(tokens)
            last = now
        }

        override fun onEnd(figures: Figures) {
            session?.close()
            listener.onEnd(figures)
        }

        override fun onError(message: String) {
            session?.close()
            listener.onError(message)
        }

        /** The target is the least time that a token took: the clocks are to stay where they were then. */
        private fun report(tokenNs: Long) {
            if (tokenNs <= 0) return
            val running = session ?: manager.createHintSession(threads(), tokenNs)?.also { session = it } ?: return
            if (tokenNs < best) running.updateTargetWorkDuration(tokenNs)
            best = minOf(best, tokenNs)
            running.reportActualWorkDuration(tokenNs)
        }
    }

    /** This thread, and those that it started for ONNX Runtime, which have its name. */
    private fun threads(): IntArray {
        val own = Process.myTid()
        val name = name(own)
        val tasks = File("/proc/self/task").list().orEmpty().mapNotNull { it.toIntOrNull() }
        return tasks.filter { it == own || (name != null && name(it) == name) }.toIntArray()
    }

    private fun name(task: Int): String? = try {
        File("/proc/self/task/$task/comm").readText().trim()
    } catch (_: IOException) {
        null
    }
}
